// float16 and bfloat16 as the host stores them. Conversions round to the
// nearest, ties to even; NaN stays NaN.
#ifndef SKRULL_CUDA_CPU_HALF_H_
#define SKRULL_CUDA_CPU_HALF_H_

#include <bit>
#include <cstdint>

namespace skrull::exec {

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    if (value != value) {
      bits = static_cast<uint16_t>((word >> 16) | 0x40U);  // quiet
    } else {
      bits =
          static_cast<uint16_t>((word + 0x7FFFU + ((word >> 16) & 1U)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
};

struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((word >> 16) & 0x8000U);
    const uint32_t magnitude = word & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {  // NaN
      bits = static_cast<uint16_t>(sign | 0x7E00U);
    } else if (magnitude >= 0x477FF000U) {  // 65520 and more round to infinity
      bits = static_cast<uint16_t>(sign | 0x7C00U);
    } else if (magnitude < 0x38800000U) {  // below 2^-14: subnormal
      // Adding 0.5 aligns the last kept bit with the float's last bit.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      bits = static_cast<uint16_t>(
          sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
    } else {
      const uint32_t rounded =
          magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - 0x38000000U;
      bits = static_cast<uint16_t>(sign | (rounded >> 13));
    }
  }
  explicit operator float() const {
    const uint32_t sign = (uint32_t{bits} & 0x8000U) << 16;
    const uint32_t exponent = (uint32_t{bits} >> 10) & 0x1FU;
    const uint32_t mantissa = uint32_t{bits} & 0x3FFU;
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
      const float value = static_cast<float>(mantissa) * 0x1p-24F;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
    }
    const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
    return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
  }
};

}  // namespace skrull::exec

#endif  // SKRULL_CUDA_CPU_HALF_H_
