#include "kernels/cpu/cpu.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/kv_slice.h"

void kv_store_ref(void *const *slices, int pos, const float *k, const float *v, size_t ld,
                  int rows, int n_kv_head, int head_dim, uint8_t *bad)
{
    for (int row = 0; row < rows; row++, k += ld, v += ld) {
        int page = (pos + row) / KERN_PAGE_TOKENS, j = (pos + row) % KERN_PAGE_TOKENS;
        for (int head = 0; head < n_kv_head; head++) {
            uint16_t *slice = (uint16_t *)slices[page] + page_head_at(head, head_dim);
            for (int c = 0; c < head_dim; c++) {
                uint16_t key = float_to_half(k[head * head_dim + c]);
                uint16_t value = float_to_half(v[head * head_dim + c]);
                slice[page_key_at(j, c, head_dim)] = key;
                slice[page_value_at(j, c, head_dim)] = value;
                if ((key & 0x7c00) == 0x7c00 || (value & 0x7c00) == 0x7c00)
                    bad[row] = 1;
            }
        }
    }
}
