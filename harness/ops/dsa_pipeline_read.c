/* The numbers of a case of dsa_decode_pipeline that its code works with. */
#include "harness/ops/dsa_pipeline.h"

int64_t dsa_pipeline_pos(const struct case_line *c, uint32_t row)
{
    return dsa_row_item(c, "pos", row, case_int(c, "len") - 1);
}

void dsa_pipeline_read(const struct case_line *c, struct dsa_pipeline *p)
{
    *p = (struct dsa_pipeline){.rows = case_u32(c, "rows"),
                               .heads = case_u32(c, "heads"),
                               .index_heads = case_u32(c, "iheads"),
                               .dim = case_u32(c, "dim"),
                               .len = case_u32(c, "len"),
                               .kpool = case_u32(c, "kpool"),
                               .pad = case_u32(c, "pad"),
                               .block = case_u32(c, "block"),
                               .max_blocks = case_number_u32(c, "max_blocks_per_seq"),
                               .pools = case_number_u32(c, "pools"),
                               .selected_k = case_number_u32(c, "selected_k"),
                               .paged = case_enum_is(c, "keys", "paged"),
                               .page_pools = case_number_u32(c, "page_pools"),
                               .pool_pages = case_number_u32(c, "pool_pages"),
                               .key_pitch = case_number_u32(c, "key_pitch"),
                               .keys = dsa_keys_of(c)};
    p->keys.prefix = case_int(c, "tail") != 0;
}
