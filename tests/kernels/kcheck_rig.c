#include "tests/kernels/kcheck.h"

#include "kernels/cpu/half.h"
#include "kernels/cpu/kv_slice.h"
#include "kernels/team.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- random numbers and data ---- */

uint64_t rnd(void)
{
    uint64_t s = kcheck.state;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    kcheck.state = s;
    return s * 0x2545f4914f6cdd1du;
}

int upto(int n)
{
    return (int)((rnd() >> 33) % (uint64_t)n);
}

static float uniform(void)
{
    return (float)((double)(rnd() >> 40) / 8388608.0 - 1.0);
}

float gauss(void)
{
    float s = 0;
    for (int i = 0; i < 6; i++)
        s += uniform();
    return s * 0.7071f;
}

int odd_size(int n)
{
    int most = n < 69 ? n : 69;
    return 1 + (upto(4) ? upto(most) : upto(n));
}

static float denormal(void)
{
    uint32_t u = (uint32_t)rnd() & 0x807fffff;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* All finite and below 2^60 in size, so that sums stay finite. */
static float value(int kind, size_t i)
{
    switch (kind) {
    case 0:
        return gauss();
    case 1:
        return upto(40) ? gauss() : gauss() * 60;
    case 2:
        return 0.0f;
    case 3:
        return upto(2) ? 0.0f : -0.0f;
    case 4:
        return denormal();
    case 5:
        return upto(4) ? gauss() : denormal();
    case 6:
        return gauss() * 0x1p-90f * (float)(1 << upto(4));
    case 7:
        return ldexpf(gauss(), upto(80) - 40);
    case 8:
        return (float)(upto(255) - 127) + 0.5f * (float)upto(3);
    case 9:
        return i % 2 ? 1.0f : -1.0f;
    case 10:
        return 127.0f;
    case 11:
        return ldexpf(upto(2) ? 1.0f : -1.0f, upto(20) - 10);
    case 12:
        return gauss() * 1e15f;
    default:
        return upto(8) ? -69.0f + 2 * uniform() : uniform() * 90;
    }
}

void fill(float *x, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value(kind, i);
}

uint16_t random_half(int kind)
{
    uint16_t any = (uint16_t)rnd(), sane = (uint16_t)(0x2000 + upto(0x800));
    switch (kind) {
    case 0:
        return sane;
    case 1:
        return (uint16_t)((any & 0x7c00) == 0x7c00 ? any & 0xbfff : any);
    case 2:
        return (uint16_t)(any & 0x83ff);
    default:
        return (uint16_t)(upto(2) ? 0x8000 : sane | upto(2) << 15);
    }
}

/* ---- memory ---- */

enum { EDGE_SLOTS = 10, EDGE_SIZE = 8 << 20, GUARD_SLOTS = 5, GUARD = 128 };

void *edge_bytes(int slot, size_t n)
{
    static uint8_t *ends[EDGE_SLOTS];
    if (!ends[slot]) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uint8_t *p = mmap(NULL, EDGE_SIZE + page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(p != MAP_FAILED);
        ends[slot] = p + EDGE_SIZE;
        assert_int_equal(mprotect(ends[slot], page, PROT_NONE), 0);
    }
    assert_true(n <= EDGE_SIZE);
    return ends[slot] - n;
}

void *edge_aligned(int slot, size_t n)
{
    return edge_bytes(slot, (n + 63) / 64 * 64);
}

float *edge_floats(int slot, size_t n, int kind)
{
    float *x = edge_bytes(slot, n * sizeof *x);
    fill(x, n, kind);
    return x;
}

static struct {
    uint8_t *base, *data;
    size_t cap, n;
} guards[GUARD_SLOTS];

void *guarded(int slot, size_t n, int skew)
{
    size_t need = n + 2 * GUARD + 64;
    if (guards[slot].cap < need) {
        free(guards[slot].base);
        guards[slot].base = aligned_alloc(64, (need + 63) / 64 * 64);
        guards[slot].cap = need;
    }
    memset(guards[slot].base, 0xaa, need);
    guards[slot].data = guards[slot].base + GUARD + skew;
    guards[slot].n = n;
    return guards[slot].data;
}

void check_guards(int slot, const char *who)
{
    const uint8_t *begin = guards[slot].data, *end = begin + guards[slot].n;
    for (int i = 0; i < 64; i++)
        if (begin[-1 - i] != 0xaa || end[i] != 0xaa)
            fail_msg("%s wrote outside its output", who);
}

void check_same(const void *want, const void *got, size_t n, const char *format, ...)
{
    if (!memcmp(want, got, n))
        return;
    const uint8_t *a = want, *b = got;
    size_t i = 0;
    while (a[i] == b[i])
        i++;
    i = i / 4 * 4;
    float x = 0, y = 0;
    memcpy(&x, a + i, n - i < 4 ? n - i : 4);
    memcpy(&y, b + i, n - i < 4 ? n - i : 4);
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    fail_msg("%s: byte %zu of %zu: want %a, got %a", what, i, n, (double)x, (double)y);
}

/* ---- bounds ---- */

void share_add(struct share *s, double error, double bound)
{
    double share = error <= 0 ? 0 : error / bound;
    if (!(share <= s->worst)) /* NaN counts as worst */
        s->worst = isnan(share) ? INFINITY : share;
}

void share_report(const struct share *s, const char *what)
{
    print_message("             %s: worst error is %.3f of its bound\n", what, s->worst);
    assert_true(s->worst <= 1.0);
}

void need_fast(void)
{
    if (kcheck.fast.matmul == kcheck.ref.matmul)
        skip();
}

void set_threads(int n)
{
    static struct team *team;
    team_free(team);
    team = team_new(n);
    team_use(team);
}

/* ---- weights ---- */

static void put_half(uint8_t *p, uint16_t h)
{
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* Scales of a block that was filled with random bytes. Minima are like scales. */
static void make_scales(uint8_t *p, enum kern_type t, int kind)
{
    switch (t) {
    case KERN_Q4_1:
    case KERN_Q5_1:
    case KERN_Q4_K:
    case KERN_Q5_K:
        put_half(p + 2, random_half(kind));
        put_half(p, random_half(kind));
        break;
    case KERN_Q6_K:
        put_half(p + 208, random_half(kind));
        break;
    default:
        put_half(p, random_half(kind));
    }
}

static void make_row(uint8_t *row, enum kern_type t, int n_in, int scales)
{
    int extreme = upto(4); /* all ones, all zeros, or random weights */
    for (int b = 0; b < n_in / kern_types[t].block_values;
         b++, row += kern_types[t].block_bytes) {
        if (t == KERN_F32 || t == KERN_F16 || t == KERN_BF16) {
            float f = gauss();
            uint32_t u;
            memcpy(&u, &f, 4);
            if (t == KERN_F32)
                memcpy(row, &u, 4);
            else
                put_half(row, t == KERN_BF16 ? (uint16_t)(u >> 16) : random_half(scales));
            continue;
        }
        for (int i = 0; i < kern_types[t].block_bytes; i++)
            row[i] = extreme == 0 ? 0xff : extreme == 1 ? 0 : (uint8_t)rnd();
        make_scales(row, t, scales);
    }
}

void matrix_make(struct matrix *m, enum kern_type t, int n_out, int n_in, int scales)
{
    size_t row_bytes = kern_row_bytes(t, (size_t)n_in);
    *m = (struct matrix){.type = t, .n_out = n_out, .n_in = n_in};
    m->file = edge_bytes(8, row_bytes * (size_t)n_out);
    for (int i = 0; i < n_out; i++)
        make_row(m->file + row_bytes * (size_t)i, t, n_in, scales);
    size_t bytes = kern_packed_bytes(t, n_out, n_in);
    void *data = edge_aligned(9, bytes);
    kern_pack(data, m->file, t, n_out, n_in, 0, n_out);
    m->packed = (struct kern_weights){t, n_out, n_in, data};
}

static double half_value(const uint8_t *p)
{
    int h = p[0] | p[1] << 8, e = h >> 10 & 31, f = h & 1023;
    double v = e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
    return h & 0x8000 ? -v : v;
}

static double float_value(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Sub-blocks of K types: 6-bit scale and minimum number s of 8. */
static void k_scale(const uint8_t *p, int s, int *scale, int *min)
{
    *scale = s < 4 ? p[s] & 63 : (p[s + 4] & 15) + 16 * (p[s - 4] >> 6);
    *min = s < 4 ? p[s + 4] & 63 : (p[s + 4] >> 4) + 16 * (p[s] >> 6);
}

static struct weight k4_k5_weight(const uint8_t *p, int i, bool fifth)
{
    int s = i / 32, scale, min, byte = p[(fifth ? 48 : 16) + i / 64 * 32 + i % 32];
    int q = i / 32 % 2 ? byte >> 4 : byte & 15;
    if (fifth)
        q += 16 * (p[16 + i % 32] >> s & 1);
    k_scale(p + 4, s, &scale, &min);
    return (struct weight){half_value(p) * scale, q, -half_value(p + 2) * min};
}

static struct weight k6_weight(const uint8_t *p, int i)
{
    int half = i / 128, j = i % 128, byte = p[64 * half + j % 64];
    int q = (j < 64 ? byte & 15 : byte >> 4) +
            16 * (p[128 + 32 * half + j % 32] >> 2 * (j / 32) & 3);
    return (struct weight){half_value(p + 208) * (int8_t)p[192 + i / 16], q - 32, 0};
}

struct weight matrix_weight(const struct matrix *m, int out, int in)
{
    int per = kern_types[m->type].block_values, i = in % per;
    const uint8_t *p = m->file + kern_row_bytes(m->type, (size_t)m->n_in) * (size_t)out +
                       (size_t)(in / per) * (size_t)kern_types[m->type].block_bytes;
    int at = i % 16, high = i >= 16;
    switch (m->type) {
    case KERN_F32: {
        uint32_t u;
        memcpy(&u, p, 4);
        return (struct weight){float_value(u), 1, 0};
    }
    case KERN_F16:
        return (struct weight){half_value(p), 1, 0};
    case KERN_BF16:
        return (struct weight){float_value((uint32_t)(p[0] | p[1] << 8) << 16), 1, 0};
    case KERN_Q4_0:
        return (struct weight){half_value(p), (p[2 + at] >> 4 * high & 15) - 8, 0};
    case KERN_Q4_1:
        return (struct weight){half_value(p), p[4 + at] >> 4 * high & 15, half_value(p + 2)};
    case KERN_Q5_0:
        return (struct weight){
            half_value(p), (p[6 + at] >> 4 * high & 15) + 16 * (p[2 + i / 8] >> i % 8 & 1) - 16,
            0};
    case KERN_Q5_1:
        return (struct weight){half_value(p),
                               (p[8 + at] >> 4 * high & 15) + 16 * (p[4 + i / 8] >> i % 8 & 1),
                               half_value(p + 2)};
    case KERN_Q8_0:
        return (struct weight){half_value(p), (int8_t)p[2 + i], 0};
    case KERN_Q4_K:
        return k4_k5_weight(p, i, false);
    case KERN_Q5_K:
        return k4_k5_weight(p, i, true);
    default:
        return k6_weight(p, i);
    }
}

void random_q8_page(void *slice, int n_kv_head, int head_dim, float most)
{
    uint8_t *bytes = slice;
    memset(slice, 0x7e, kern_q8_slice_bytes(n_kv_head, head_dim));
    for (int h = 0; h < n_kv_head; h++, bytes += q8_head_bytes(head_dim)) {
        size_t n = 2 * KERN_PAGE_TOKENS * (size_t)head_dim;
        uint16_t *scales = (uint16_t *)(void *)(bytes + n);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)(upto(255) - 127);
        for (int i = 0; i < head_dim + KERN_PAGE_TOKENS; i++)
            scales[i] = float_to_half(upto(9) ? most * (float)upto(1000) / 1000 : 0);
    }
}
