// Compares the tensor core of the GPU at hand with the model in mma_model.c, bit for bit:
//
//   cc -O2 -march=native -ffp-contract=off -I. -c gpu/simt/mma_model.c -o mma_model.o
//   nvcc -arch=native gpu/simt/testdata/mma_probe.cu mma_model.o -o mma_probe && ./mma_probe
//
// Prints how many of the random elements of each kind differ, with the first few, and what the
// device makes of the corners that documents leave open. Exit status 1 when anything differs.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

extern "C" void simt_mma_tile(uint32_t arch, float *d, const uint16_t *a, const uint16_t *b,
                              const float *c);

struct tile {
    uint16_t a[16][16], b[16][8];
    float c[16][8];
};

__global__ void multiply(const tile *tiles, float *results, int n)
{
    int at = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    int group = lane / 4, t = lane % 4;

    if (at >= n) return;
    const tile &in = tiles[at];
    uint32_t a[4], b[2];
    float c[4], d[4];
    for (int r = 0; r < 4; r++) {
        int row = group + r % 2 * 8, k = 2 * t + r / 2 * 8;

        a[r] = in.a[row][k] | (uint32_t)in.a[row][k + 1] << 16;
        c[r] = in.c[group + r / 2 * 8][2 * t + r % 2];
    }
    for (int r = 0; r < 2; r++)
        b[r] = in.b[2 * t + 8 * r][group] | (uint32_t)in.b[2 * t + 8 * r + 1][group] << 16;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),
                   "f"(c[1]), "f"(c[2]), "f"(c[3]));
    for (int r = 0; r < 4; r++) results[at * 128 + (group + r / 2 * 8) * 8 + 2 * t + r % 2] = d[r];
}

static uint64_t state = 88172645463325252ull;

static uint64_t draw()
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// Sign and significand at random, the biased exponent within `spread` of `centre`, one in 16 zero.
static uint16_t draw_bf16(int centre, int spread)
{
    uint64_t r = draw();
    int exponent = centre + (int)((r >> 40) % (2 * spread + 1)) - spread;

    if (!(r >> 32 & 15)) return (uint16_t)(r & 0x8000);
    exponent = exponent < 0 ? 0 : exponent > 254 ? 254 : exponent;
    return (uint16_t)((r & 0x807f) | (uint64_t)exponent << 7);
}

static uint32_t arch;
static long total_differ;

static void compare(const char *name, const std::vector<tile> &tiles, bool show_all)
{
    int n = (int)tiles.size(), shown = 0;
    long differ = 0;
    std::vector<float> results(n * 128);
    tile *device_tiles;
    float *device_results, model[128];

    cudaMalloc(&device_tiles, n * sizeof(tile));
    cudaMalloc(&device_results, n * 128 * sizeof(float));
    cudaMemcpy(device_tiles, tiles.data(), n * sizeof(tile), cudaMemcpyHostToDevice);
    multiply<<<(n + 3) / 4, 128>>>(device_tiles, device_results, n);
    cudaError_t error =
        cudaMemcpy(results.data(), device_results, n * 128 * sizeof(float), cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) {
        printf("%s\n", cudaGetErrorString(error));
        exit(3);
    }
    for (int i = 0; i < n; i++) {
        simt_mma_tile(arch, model, &tiles[i].a[0][0], &tiles[i].b[0][0], &tiles[i].c[0][0]);
        for (int j = 0; j < 128; j++) {
            uint32_t got = bits_of(results[i * 128 + j]), want = bits_of(model[j]);

            differ += got != want;
            if ((show_all && j == 0) || (got != want && shown++ < 4))
                printf("  %s tile %d element %d: device %08x, model %08x\n", name, i, j, got, want);
        }
    }
    printf("%-12s %9ld elements, %ld differ\n", name, n * 128L, differ);
    total_differ += differ;
    cudaFree(device_tiles);
    cudaFree(device_results);
}

struct kind {
    const char *name;
    int centre, spread, c_centre, c_spread;
};
static const kind kinds[] = {
    {"near", 127, 2, 127, 10},
    {"spread 14", 127, 14, 127, 28},
    {"spread 30", 127, 30, 127, 60},
    {"everything", 127, 127, 127, 127},
    {"low", 66, 6, 4, 4},
    {"lowest", 60, 4, 0, 2},
    {"subnormal", 0, 0, 10, 10},
    {"high", 188, 4, 250, 4},
    {"overflow", 200, 30, 254, 2},
    {"large c", 110, 8, 127, 3},
    {"small c", 127, 8, 80, 10},
};

// Half of the tiles have pairs of products that cancel.
static void random_tiles(const kind &k, int n)
{
    std::vector<tile> tiles(n);

    for (int i = 0; i < n; i++) {
        tile &t = tiles[i];

        for (auto &row : t.a)
            for (auto &x : row) x = draw_bf16(k.centre, k.spread);
        for (auto &row : t.b)
            for (auto &x : row) x = draw_bf16(k.centre, k.spread);
        for (auto &row : t.c)
            for (auto &x : row)
                x = float_of((uint32_t)draw_bf16(k.c_centre, k.c_spread) << 16 |
                             (uint32_t)(draw() & 0xffff));
        for (int m = 0; i % 2 && m < 16; m++)
            for (int p = 0; p < 7; p++) t.a[m][15 - p] = t.a[m][p] ^ 0x8000;
        for (int p = 0; i % 2 && p < 7; p++) memcpy(t.b[15 - p], t.b[p], sizeof t.b[p]);
    }
    compare(k.name, tiles, false);
}

// One a and one b for the first `n` of k, the rest zero.
static tile corner(uint16_t a, uint16_t b, int n, uint32_t c)
{
    tile t = {};

    for (int k = 0; k < n; k++) {
        for (int m = 0; m < 16; m++) t.a[m][k] = a;
        for (int j = 0; j < 8; j++) t.b[k][j] = b;
    }
    for (auto &row : t.c)
        for (auto &x : row) x = float_of(c);
    return t;
}

static void corners()
{
    std::vector<tile> tiles = {
        corner(0x8000, 0x3f80, 16, 0x80000000), // every term is -0
        corner(0xbf80, 0x3f80, 1, 0x3f800000),  // 1 - 1
        corner(0x9a00, 0x1900, 1, 0),           // -2^-152: truncated to zero
        corner(0x9b00, 0x1980, 1, 0),           // -2^-149
        corner(0, 0x7f00, 1, 0x30800000),       // 0 * 2^127 beside 2^-30
        corner(0, 0, 1, 0x80000001),            // a subnormal c
        corner(0x7f7f, 0x3f80, 16, 0x7f7fffff), // overflow of a truncated sum
        corner(0x7f80, 0, 1, 0),                // infinity times zero
        corner(0, 0, 1, 0xffc00001),            // a NaN's payload
        corner(0x0d80, 0x2500, 16, 0),          // 16 * 2^-153: kept by the lowest quantum
    };

    compare("corners", tiles, true);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 20000;
    cudaDeviceProp properties;

    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
        printf("no device\n");
        return 77;
    }
    arch = (uint32_t)(properties.major * 10 + properties.minor);
    printf("%s, sm_%u\n", properties.name, arch);
    for (const kind &k : kinds) random_tiles(k, n);
    corners();
    return total_differ != 0;
}
