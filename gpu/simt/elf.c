/* Where a module's static __shared__ variables are: the symbol table of its file knows their names,
 * addresses and sizes. */
#include "internal.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
    const unsigned char *bytes;
    uint64_t size;
};

/* A piece of the file, or NULL when it is not inside. */
static const void *at(const struct image *image, uint64_t offset, uint64_t bytes)
{
    if (offset > image->size || bytes > image->size - offset) return NULL;
    return image->bytes + offset;
}

/* The last component of a mangled local name: _ZZ4kernE4tile -> tile. */
static void plain_name(const char *symbol, char *name, size_t size)
{
    const char *last = NULL;

    for (const char *p = symbol; *p; p++) {
        char *end;
        unsigned long length;

        if (*p != 'E' || !isdigit((unsigned char)p[1])) continue;
        length = strtoul(p + 1, &end, 10);
        if (length > 0 && length <= strlen(end)) last = p + 1;
    }
    if (last) {
        char *end;
        unsigned long length = strtoul(last, &end, 10);

        snprintf(name, size, "%.*s", (int)length, end);
    } else {
        snprintf(name, size, "%s", symbol);
    }
}

static int by_address(const void *a, const void *b)
{
    const struct simt_variable *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static bool add_variable(struct gpu_module *module, const Elf64_Sym *symbol, const char *name)
{
    uintptr_t begin = module->load_base + symbol->st_value;
    uintptr_t low = (uintptr_t)module->table->shared_begin;
    uintptr_t high = (uintptr_t)module->table->shared_end;
    struct simt_variable *grown, *added;

    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_size == 0) return true;
    if (begin < low || begin >= high || symbol->st_size > high - begin) return true;
    if (strstr(name, "simt_red_zone_")) return true;
    grown = realloc(module->variables, (module->n_variables + 1) * sizeof *grown);
    if (!grown) return false;
    module->variables = grown;
    added = &grown[module->n_variables++];
    added->begin = begin;
    added->size = symbol->st_size;
    plain_name(name, added->name, sizeof added->name);
    return true;
}

static bool read_symbols(struct gpu_module *module, const struct image *image,
                         const Elf64_Shdr *sections, uint32_t n_sections, const Elf64_Shdr *table)
{
    uint64_t n = table->sh_size / sizeof(Elf64_Sym);
    const Elf64_Sym *symbols = at(image, table->sh_offset, table->sh_size);
    const Elf64_Shdr *names = table->sh_link < n_sections ? &sections[table->sh_link] : NULL;
    const char *text = names ? at(image, names->sh_offset, names->sh_size) : NULL;

    if (!symbols || !text || names->sh_size == 0 || text[names->sh_size - 1] != 0) return true;
    for (uint64_t i = 0; i < n; i++)
        if (symbols[i].st_name < names->sh_size &&
            !add_variable(module, &symbols[i], text + symbols[i].st_name))
            return false;
    return true;
}

static bool read_image(struct gpu_module *module, const struct image *image)
{
    const Elf64_Ehdr *header = at(image, 0, sizeof *header);
    const Elf64_Shdr *sections;

    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return true;
    sections = at(image, header->e_shoff, (uint64_t)header->e_shnum * sizeof *sections);
    if (!sections) return true;
    for (uint32_t i = 0; i < header->e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB &&
            !read_symbols(module, image, sections, header->e_shnum, &sections[i]))
            return false;
    return true;
}

/* A section that no symbol describes counts as one variable. */
static bool whole_section(struct gpu_module *module)
{
    module->variables = calloc(1, sizeof *module->variables);
    if (!module->variables) return false;
    module->n_variables = 1;
    module->variables->begin = (uintptr_t)module->table->shared_begin;
    module->variables->size = module->table->shared_end - module->table->shared_begin;
    snprintf(module->variables->name, sizeof module->variables->name, SIMT_STATIC_SHARED_NAME);
    return true;
}

bool simt_read_variables(struct gpu_module *module)
{
    struct image image = {NULL, 0};
    struct stat status;
    bool ok = true;
    int file;

    if (module->table->shared_begin == module->table->shared_end) return true;
    file = open(module->path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);

        if (bytes != MAP_FAILED) {
            image = (struct image){bytes, (uint64_t)status.st_size};
            ok = read_image(module, &image);
            munmap(bytes, (size_t)status.st_size);
        }
    }
    if (file >= 0) close(file);
    if (!ok) return false;
    if (module->n_variables == 0) return whole_section(module);
    qsort(module->variables, module->n_variables, sizeof *module->variables, by_address);
    return true;
}
