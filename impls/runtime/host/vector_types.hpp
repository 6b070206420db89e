// CUDA's built-in vector types and dim3, with their alignments: the alignment sanitizer holds kernels to them.
#pragma once

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define SIMT_VECTOR(base, name, align2, align4)                                                                        \
  struct alignas(align2) name##2 { base x, y; };                                                                       \
  struct name##3 { base x, y, z; };                                                                                    \
  struct alignas(align4) name##4 { base x, y, z, w; };                                                                 \
  constexpr name##2 make_##name##2(base x, base y) { return {x, y}; }                                                  \
  constexpr name##3 make_##name##3(base x, base y, base z) { return {x, y, z}; }                                       \
  constexpr name##4 make_##name##4(base x, base y, base z, base w) { return {x, y, z, w}; }

SIMT_VECTOR(signed char, char, 2, 4)
SIMT_VECTOR(unsigned char, uchar, 2, 4)
SIMT_VECTOR(short, short, 4, 8)
SIMT_VECTOR(unsigned short, ushort, 4, 8)
SIMT_VECTOR(int, int, 8, 16)
SIMT_VECTOR(unsigned, uint, 8, 16)
SIMT_VECTOR(float, float, 8, 16)
SIMT_VECTOR(long long, longlong, 16, 16)
SIMT_VECTOR(double, double, 16, 16)

#undef SIMT_VECTOR
