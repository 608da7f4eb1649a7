# attest: verification and fuzzing of sparse-attention CUDA kernels.   make help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:

CONFIG   ?= release
CC       := clang
CXX      := clang++
B        := build/$(CONFIG)
Q        := $(if $(V),,@)
ARCH     ?= x86-64-v3

OPT_release := -O2 -g
OPT_debug   := -O0 -g
OPT_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT      := $(OPT_$(CONFIG))
ifeq ($(OPT),)
$(error CONFIG=$(CONFIG) is unknown; it is one of release, debug, asan)
endif

WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter
# The same value on every machine: no contraction, no fast-math; FMA only where fma() is written.
FP       := -ffp-contract=off -fno-fast-math
CFLAGS   := -std=c17 -D_GNU_SOURCE $(OPT) -march=$(ARCH) $(FP) $(WARN) -MMD -MP -fPIC $(EXTRA_CFLAGS)
LDFLAGS  := $(OPT) -rdynamic
LDLIBS   := -lm -ldl -lpthread -lboost_context -lcjson

REF_SRC     := $(filter-out ref/test_%.c,$(wildcard ref/*.c))
GPU_SRC     := $(filter-out %/test_%.c gpu/test_%.c,$(wildcard gpu/*.c gpu/simt/*.c gpu/cuda/*.c))
HARNESS_SRC := $(filter-out harness/test_%.c harness/main.c,$(wildcard harness/*.c harness/ops/*.c))
TEST_SRC    := $(wildcard ref/test_*.c gpu/test_*.c gpu/*/test_*.c harness/test_*.c)
MODULES     := $(patsubst kernels/%.cu,%,$(wildcard kernels/*.cu))

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB_OBJ  := $(call obj,$(REF_SRC) $(GPU_SRC) $(HARNESS_SRC))
TEST_OBJ := $(call obj,$(TEST_SRC))
SIMT_SO  := $(foreach m,$(MODULES),$(B)/simt/$(m).so $(B)/simt/$(m).trace.so)

.PHONY: all help check clean simt
all: $(B)/attest simt ## build the program and the CPU modules

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

# A change of flags rebuilds everything.
FLAGS_STAMP := $(B)/flags
$(shell mkdir -p $(B); echo '$(CC) $(CFLAGS) $(LDFLAGS)' | cmp -s - $(FLAGS_STAMP) || echo '$(CC) $(CFLAGS) $(LDFLAGS)' > $(FLAGS_STAMP))

$(B)/obj/%.o: %.c $(FLAGS_STAMP)
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC    $<")
	$(Q)$(CC) $(CFLAGS) -I. -c $< -o $@

$(B)/attest: $(LIB_OBJ) $(B)/obj/harness/main.o
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS)

$(B)/test_runner: $(LIB_OBJ) $(TEST_OBJ)
	@$(if $(V),,echo "  LINK  $@")
	$(Q)$(CC) $(LDFLAGS) $^ -o $@ $(LDLIBS) -lcriterion -lmpfr -lgmp

# The kernels' own source for the CPU: a fast module and one whose every load and store is checked.
$(B)/simt/%.trace.so: kernels/%.cu mk/simt-module.sh
	@mkdir -p $(@D)
	@$(if $(V),,echo "  SIMT  $@")
	$(Q)mk/simt-module.sh --trace $(if $(filter asan,$(CONFIG)),--asan) $< $@
$(B)/simt/%.so: kernels/%.cu mk/simt-module.sh
	@mkdir -p $(@D)
	@$(if $(V),,echo "  SIMT  $@")
	$(Q)mk/simt-module.sh $(if $(filter asan,$(CONFIG)),--asan) $< $@
simt: $(SIMT_SO) ## build the CPU modules of the kernels

check: $(B)/test_runner simt ## run every test
	$(B)/test_runner

clean: ## remove everything built
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(wildcard $(B)/simt/*.d)
