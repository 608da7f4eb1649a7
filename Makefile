# attest: verification and fuzzing of sparse-attention CUDA kernels.   make help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:

CONFIG   ?= release
CC       := clang
CXX      := clang++
B        := build/$(CONFIG)
Q        := $(if $(V),,@)
say       = $(if $(V),,@echo "  $(1)  $(2)")
ARCH     ?= x86-64-v3
JOBS     ?= $(shell nproc)

OPT_release := -O2 -g
OPT_debug   := -O0 -g
OPT_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT_fuzz    := $(OPT_asan) -fsanitize=fuzzer-no-link -fno-sanitize-coverage=stack-depth
OPT_coverage := -O2 -g
OPT      := $(OPT_$(CONFIG))
ifeq ($(OPT),)
$(error CONFIG=$(CONFIG) is unknown; it is one of release, debug, asan, fuzz, coverage)
endif
SIMT_FLAGS := $(if $(filter asan fuzz,$(CONFIG)),--asan) $(if $(filter fuzz,$(CONFIG)),--fuzz) \
              $(if $(filter coverage,$(CONFIG)),--coverage)

WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter -Wno-missing-field-initializers
# The same value on every machine: no contraction, no fast-math; FMA only where fma() is written.
FP       := -ffp-contract=off -fno-fast-math
CFLAGS   := -std=c17 -D_GNU_SOURCE $(OPT) -march=$(ARCH) $(FP) $(WARN) -MMD -MP -fPIC $(EXTRA_CFLAGS)
LDFLAGS  := $(OPT) -rdynamic
LDLIBS   := -lm -ldl -lpthread -lcjson

REF_SRC     := $(filter-out ref/test_%.c,$(wildcard ref/*.c))
PTX_SRC     := $(filter-out gpu/simt/ptx/main.c,$(wildcard gpu/simt/ptx/*.c))
GPU_SRC     := $(filter-out gpu/test_%.c gpu/cuda/test_%.c gpu/simt/test_%.c,$(wildcard gpu/*.c gpu/simt/*.c gpu/cuda/*.c))
TEST_SRC    := $(wildcard ref/test_*.c gpu/test_*.c gpu/*/test_*.c harness/*/test_*.c)
HARNESS_SRC := $(filter-out $(TEST_SRC) harness/cli/main.c,$(wildcard harness/*/*.c))
MODULES     := $(patsubst kernels/%.cu,%,$(wildcard kernels/*.cu))
BROKEN      := $(patsubst kernels/broken/%.edit,%,$(wildcard kernels/broken/*.edit))
FUZZ_TARGETS := $(patsubst fuzz/fuzz_%.c,%,$(wildcard fuzz/fuzz_*.c))
FUZZ_SRC    := $(filter-out fuzz/fuzz_%.c fuzz/tool.c,$(wildcard fuzz/*.c))
KERNEL_SRC  := $(wildcard kernels/*.cu kernels/*.cuh)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB_OBJ  := $(call obj,$(REF_SRC) $(GPU_SRC) $(HARNESS_SRC))
TEST_OBJ := $(call obj,$(TEST_SRC))
SIMT_SO  := $(foreach m,$(MODULES),$(B)/simt/$(m).so $(B)/simt/$(m).trace.so)
# Races need the instrumented module to be seen in every run; for the others it would be build time.
BROKEN_RACES := $(patsubst kernels/broken/%.edit,%,$(shell grep -l '^kind: RACE' kernels/broken/*.edit))
BROKEN_SO := $(BROKEN:%=$(B)/broken/%.so) $(BROKEN_RACES:%=$(B)/broken/%.trace.so)
NVCC     := $(shell command -v nvcc 2>/dev/null)
CUDA_BIN := $(if $(NVCC),$(foreach m,$(MODULES),$(B)/cuda/$(m).fatbin))

.PHONY: all help verify check install uninstall deps build simt cuda broken broken-cuda fuzz fuzz-smoke fuzz-targets coverage report bisect mutants bisect-drill fuzz-broken config clean arrows test exhaust-rotation device-check

all: build ## build the program and the kernel modules

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24
	@echo
	@echo "  CONFIG=release|debug|asan|fuzz   V=1 shows the commands   JOBS=N"

verify: deps ## verify every operation on the CPU backend; live table; reports/verify.md
	+$(Q)$(MAKE) -j$(JOBS) build
	@mkdir -p reports
	$(Q)build/attest verify --report reports/verify.md $(ARGS)

check: deps ## run every test
	+$(Q)$(MAKE) -j$(JOBS) build broken $(B)/test_runner
	$(Q)mk/check.sh $(B)

deps: ## install what the build needs and this machine lacks
	$(Q)mk/deps.sh

build: $(B)/attest build/simt-ptx simt cuda
	$(Q)ln -sfn $(CONFIG)/attest build/attest

config: ## what would be built and with what
	@echo "config    $(CONFIG)"
	@echo "compiler  $$($(CC) --version | head -n 1)"
	@echo "flags     $(CFLAGS)"
	@echo "kernels   $(MODULES)"
	@echo "broken    $(words $(BROKEN)) kernels"
	@echo "nvcc      $(if $(NVCC),$(NVCC),none: the GPU modules are left out)"

arrows: $(LIB_OBJ) ## check which folder includes which, and that no files need each other
	$(Q)mk/arrows.sh
	$(Q)mk/circles.sh $(B)/obj

# A change of flags rebuilds everything.
FLAGS_STAMP := $(B)/flags
$(shell mkdir -p $(B); echo '$(CC) $(CFLAGS) $(LDFLAGS)' | cmp -s - $(FLAGS_STAMP) || echo '$(CC) $(CFLAGS) $(LDFLAGS)' > $(FLAGS_STAMP))

$(B)/obj/%.o: %.c $(FLAGS_STAMP)
	@mkdir -p $(@D)
	$(call say,CC   ,$<)
	$(Q)$(CC) $(CFLAGS) -I. -c $< -o $@

$(B)/attest: $(LIB_OBJ) $(B)/obj/harness/cli/main.o
	$(call say,LINK ,$@)
	$(Q)$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)

# Inline PTX of foreign kernels to C++: the same program in every configuration.
build/simt-ptx: $(wildcard gpu/simt/ptx/*.[ch])
	$(call say,CC   ,$@)
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE -O2 $(WARN) $(filter %.c,$^) -o $@.$$$$ && mv $@.$$$$ $@

$(B)/test_runner: $(LIB_OBJ) $(call obj,$(PTX_SRC)) $(TEST_OBJ) | build/simt-ptx
	$(call say,LINK ,$@)
	$(Q)$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS) -lcriterion -lmpfr -lgmp

test: $(B)/test_runner simt ## unit tests only
	$(B)/test_runner

# The kernels' own source for the CPU: a fast module and one whose every load and store is checked.
$(B)/simt/%.trace.so: kernels/%.cu mk/simt-module.sh
	@mkdir -p $(@D)
	$(call say,SIMT ,$@)
	$(Q)mk/simt-module.sh --trace $(SIMT_FLAGS) $< $@
$(B)/simt/%.so: kernels/%.cu mk/simt-module.sh
	@mkdir -p $(@D)
	$(call say,SIMT ,$@)
	$(Q)mk/simt-module.sh $(SIMT_FLAGS) $< $@
simt: $(SIMT_SO) ## build the CPU modules of the kernels

$(B)/cuda/%.fatbin: kernels/%.cu mk/cuda-module.sh
	@mkdir -p $(@D)
	$(call say,NVCC ,$@)
	$(Q)mk/cuda-module.sh $< $@
cuda: $(CUDA_BIN) ## build the GPU modules, where nvcc is
	$(if $(NVCC),,@echo "  nvcc is not here: the GPU modules are left out")

device-check: ## everything that needs a GPU, with a table at the end: make device-check OUT=reports/device
	$(Q)mk/device-check.sh $(B) $(or $(OUT),reports/device)

# Kernels that are wrong in one way each.
$(B)/broken/%.src: kernels/broken/%.edit $(KERNEL_SRC) | $(B)/attest
	@mkdir -p $(@D)
	$(Q)rm -rf $@; $(B)/attest broken --write $< kernels $@.new > $@.name && mv $@.new $@
$(B)/broken/%.trace.so: $(B)/broken/%.src mk/simt-module.sh
	$(call say,SIMT ,$@)
	$(Q)mk/simt-module.sh --trace $(SIMT_FLAGS) $</*.cu $@
$(B)/broken/%.so: $(B)/broken/%.src mk/simt-module.sh
	$(call say,SIMT ,$@)
	$(Q)mk/simt-module.sh $(SIMT_FLAGS) $</*.cu $@
.PRECIOUS: $(B)/broken/%.src
broken: $(BROKEN_SO) ## build the broken kernels for the CPU

$(B)/broken-cuda/%.fatbin: $(B)/broken/%.src mk/cuda-module.sh
	@mkdir -p $(@D)
	$(call say,NVCC ,$@)
	$(Q)mk/cuda-module.sh --one-arch $</*.cu $@
broken-cuda: $(foreach m,$(BROKEN),$(B)/broken-cuda/$(m).fatbin) ## build the broken kernels for the GPU

# Every position and pair of the released rotation against MPFR: the oracle's values, then the
# kernels' as the CPU backend computes them.
$(B)/exhaust_rotation: mk/exhaust_rotation.c $(call obj,$(REF_SRC))
	$(call say,LINK ,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MF $@.d -I. $^ -o $@ $(LDLIBS) -lmpfr -lgmp
$(B)/dump_rotation: mk/dump_rotation.c $(call obj,$(GPU_SRC))
	$(call say,LINK ,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -MF $@.d -I. $^ -o $@ $(LDLIBS)
exhaust-rotation: $(B)/exhaust_rotation $(B)/dump_rotation $(B)/simt/selftest_rotation.so ## check every value of the rotation against MPFR
	$(B)/exhaust_rotation --full --threads $(JOBS)
	$(B)/dump_rotation $(B)/simt/selftest_rotation.so $(B)/rotation.f32
	$(B)/exhaust_rotation --full --threads $(JOBS) --dump $(B)/rotation.f32; \
	    code=$$?; rm -f $(B)/rotation.f32; exit $$code

# Fuzz targets: everything with sanitizers. Coverage leaves out what only spreads values and
# schedules, and comparisons are watched only where bytes are parsed: elsewhere that would cost more
# than the kernels.
LIB_FUZZING_ENGINE ?= -fsanitize=fuzzer
FUZZ_BIN := $(FUZZ_TARGETS:%=$(B)/fuzz_%)
FUZZ_OBJ := $(call obj,$(FUZZ_SRC)) \
    $(filter-out $(B)/obj/harness/cli/%.o $(B)/obj/harness/report/%.o,$(LIB_OBJ))
ifeq ($(CONFIG),fuzz)
$(call obj,$(REF_SRC) $(GPU_SRC) $(wildcard harness/ops/*.c harness/case/described*.c) \
    harness/case/cache.c harness/case/expected.c harness/case/expression.c \
    harness/case/instance.c harness/judge/compare.c harness/judge/judge.c harness/run/run.c \
    harness/verify/verify.c): \
    CFLAGS += -fno-sanitize-coverage=trace-cmp
$(call obj,$(wildcard gpu/simt/*.c) harness/case/random.c harness/case/values.c \
    harness/fuzz/geometry.c harness/fuzz/mutate.c harness/fuzz/work.c $(FUZZ_SRC)): \
    CFLAGS += -O2 -fno-sanitize=fuzzer-no-link
# Pure arithmetic on a few hundred numbers, and most of the time of a tensor-core case.
$(B)/obj/gpu/simt/mma_model.o: CFLAGS += -fno-sanitize=all
endif
$(FUZZ_BIN): $(B)/fuzz_%: $(B)/obj/fuzz/fuzz_%.o $(FUZZ_OBJ)
	$(call say,LINK ,$@)
	$(Q)$(CXX) $(LDFLAGS) $^ -o $@ $(LIB_FUZZING_ENGINE) $(LDLIBS)
$(B)/fuzz_tool: $(B)/obj/fuzz/tool.o $(FUZZ_OBJ)
	$(call say,LINK ,$@)
	$(Q)$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)
$(B)/fuzz_dsa.dict $(B)/fuzz_qsa.dict: $(B)/fuzz_%.dict: $(B)/fuzz_tool
	$(Q)$< dictionary $* > $@
$(B)/fuzz_case.dict $(B)/fuzz_refusal.dict: $(B)/fuzz_tool
	$(Q)$< dictionary > $@
$(B)/fuzz_%.dict: fuzz/%.dict
	$(Q)cp $< $@
FUZZ_DICT := $(patsubst %,$(B)/fuzz_%.dict,dsa qsa case refusal $(patsubst fuzz/%.dict,%,$(wildcard fuzz/*.dict)))
fuzz-targets: $(FUZZ_BIN) $(B)/fuzz_tool $(FUZZ_DICT) $(foreach m,$(filter-out selftest_%,$(MODULES)),$(B)/simt/$(m).so)

fuzz: ## fuzz with coverage: make fuzz TARGET=dsa TIME=60 (OP=dsa_kpool)
	+$(Q)$(MAKE) -j$(JOBS) CONFIG=fuzz fuzz-targets
	$(Q)mk/fuzz.sh build/fuzz '$(TARGET)' '$(or $(TIME),60)' '$(OP)'

fuzz-smoke: ## run every fuzz target for a few seconds
	+$(Q)$(MAKE) -j$(JOBS) CONFIG=fuzz fuzz-targets
	$(Q)mk/fuzz-smoke.sh build/fuzz

# The modules are those that corpora can reach, without their traced twins.
COVERED := $(foreach m,$(filter-out selftest_%,$(MODULES)),build/coverage/simt/$(m).so)
coverage: ## line coverage of kernels/ by the corpora: build/coverage/kernels.info
	+$(Q)$(MAKE) -j$(JOBS) CONFIG=coverage build/coverage/attest $(COVERED)
	$(Q)mk/coverage.sh build/coverage

report: ## reports/tolerance.html from runs' JSON lines: make report RUNS='a.jsonl b.jsonl'
	$(Q)build/attest report $(if $(wildcard build/coverage/kernels.info),--coverage \
	    build/coverage/kernels.info) $(ARGS) $(RUNS)

bisect: ## the commit that made a case fail: make bisect GOOD=REV BAD=REV CASE='op:key=value,…'
	$(Q)build/attest bisect --good '$(GOOD)' --bad '$(or $(BAD),HEAD)' $(ARGS) '$(CASE)'

mutants: build ## mechanical mutants of the kernels, one of SHARE (default 8): each must be caught
	$(Q)JOBS=$(JOBS) mk/mutants.sh build/mutants $(or $(SHARE),8)

bisect-drill: build ## show that a regression planted in a scratch clone is found
	$(Q)mk/bisect-drill.sh

fuzz-broken: ## fuzz each broken kernel from an empty corpus until it is found
	+$(Q)$(MAKE) -j$(JOBS) CONFIG=fuzz fuzz-targets
	$(Q)mk/fuzz-planted.sh build/fuzz '$(or $(TIME),600)' $(NAMES)

# Installed as it lies here: the program finds its modules beside itself, and what compiles a kernel
# given as source two folders up.
PREFIX  ?= /usr/local
HOME_DIR = $(DESTDIR)$(PREFIX)/lib/attest
install: ## install for all users: make install PREFIX=/usr/local DESTDIR=
	@[ -x $(B)/attest ] && ls $(SIMT_SO) >/dev/null || { echo "install: run make first" >&2; exit 2; }
	install -d $(HOME_DIR)/build/$(CONFIG)/simt $(HOME_DIR)/build/$(CONFIG)/cuda $(HOME_DIR)/mk \
	    $(HOME_DIR)/gpu/simt/include $(HOME_DIR)/kernels $(DESTDIR)$(PREFIX)/bin \
	    $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install $(B)/attest $(HOME_DIR)/build/$(CONFIG)/
	install build/simt-ptx $(HOME_DIR)/build/
	install -m 644 $(SIMT_SO) $(HOME_DIR)/build/$(CONFIG)/simt/
	for f in $(wildcard $(B)/cuda/*.fatbin); do \
	    install -m 644 $$f $(HOME_DIR)/build/$(CONFIG)/cuda/ || exit 1; done
	install mk/simt-module.sh mk/torch_peers.py $(HOME_DIR)/mk/
	install -m 644 gpu/simt/rewrite.awk $(HOME_DIR)/gpu/simt/
	cp -R gpu/simt/include/. $(HOME_DIR)/gpu/simt/include/
	install -m 644 $(wildcard kernels/*.cuh) $(HOME_DIR)/kernels/
	ln -sfn ../lib/attest/build/$(CONFIG)/attest $(DESTDIR)$(PREFIX)/bin/attest
	install -m 644 mk/attest.bash-completion \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/attest
	mk/man.sh $(B)/attest >$(DESTDIR)$(PREFIX)/share/man/man1/attest.1

uninstall: ## remove what install put there: the same PREFIX and DESTDIR
	rm -rf $(HOME_DIR) $(DESTDIR)$(PREFIX)/bin/attest $(DESTDIR)$(PREFIX)/share/man/man1/attest.1 \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/attest

clean: ## remove everything built
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(B)/obj/harness/cli/main.d $(TEST_OBJ:.o=.d) \
    $(patsubst %.o,%.d,$(call obj,$(PTX_SRC))) \
    $(patsubst %.o,%.d,$(call obj,$(wildcard fuzz/*.c))) $(wildcard $(B)/simt/*.d $(B)/cuda/*.d)
