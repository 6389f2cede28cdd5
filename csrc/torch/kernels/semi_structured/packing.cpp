#include "torch/kernels/semi_structured/packing.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace loom::glue::semi_structured {

namespace {

// By which elements of a group are not zero, the first in the lowest bit: the places of the two that are
// kept, the first in the lower two bits. Of more than two, the last ones are dropped; of fewer, zeros are
// kept.
constexpr std::array<uint8_t, 16> kCodeOf = {14, 8, 9, 4, 14, 8, 9, 4, 14, 12, 13, 4, 14, 12, 13, 4};

uint8_t bits_of(const bool* group, int64_t size) {
  if (size == 2) return static_cast<uint8_t>((group[0] ? 3 : 0) | (group[1] ? 12 : 0));
  return static_cast<uint8_t>(group[0] | (group[1] << 1) | (group[2] << 2) | (group[3] << 3));
}

}  // namespace

Kept keep(const Tensor& dense, const Tensor& mask, const Format& format) {
  const int64_t rows = dense.size(0), columns = dense.size(1), groups = rows * columns / format.group;
  const auto item = static_cast<size_t>(dense.element_size());
  Kept kept{at::empty({rows, columns / 2}, dense.options()),
            at::empty({rows, columns / format.group}, dense.options().dtype(at::kByte))};
  const char* from = static_cast<const char*>(dense.const_data_ptr());
  char* to = static_cast<char*>(kept.values.mutable_data_ptr());
  const bool* is_kept = mask.const_data_ptr<bool>();
  auto* codes = kept.codes.mutable_data_ptr<uint8_t>();
  const auto copy = [&](int64_t place) {
    std::memcpy(to, from + static_cast<size_t>(place) * item, item);
    to += item;
  };
  for (int64_t group = 0; group < groups; ++group, is_kept += format.group) {
    const uint8_t code = kCodeOf[bits_of(is_kept, format.group)];
    codes[group] = code;
    if (format.group == 2) {
      copy((code & kPlaceMask) / 2);
    } else {
      copy(code & kPlaceMask);
      copy(code >> 2);
    }
    from += static_cast<size_t>(format.group) * item;
  }
  return kept;
}

Tensor dense_of(const Kept& kept, const Format& format) {
  const int64_t groups = kept.codes.numel();
  const auto item = static_cast<size_t>(kept.values.element_size());
  Tensor dense = at::zeros({kept.values.size(0), kept.values.size(1) * 2}, kept.values.options());
  const char* from = static_cast<const char*>(kept.values.const_data_ptr());
  char* to = static_cast<char*>(dense.mutable_data_ptr());
  const auto* codes = kept.codes.const_data_ptr<uint8_t>();
  const auto copy = [&](int64_t place) {
    std::memcpy(to + static_cast<size_t>(place) * item, from, item);
    from += item;
  };
  for (int64_t group = 0; group < groups; ++group) {
    if (format.group == 2) {
      copy((codes[group] & kPlaceMask) / 2);
    } else {
      copy(codes[group] & kPlaceMask);
      copy((codes[group] >> 2) & kPlaceMask);
    }
    to += static_cast<size_t>(format.group) * item;
  }
  return dense;
}

Tensor nonzero_mask(const Tensor& dense) { return dense.to(at::kFloat).ne(0).contiguous(); }

namespace {

// Where CUTLASS's kernels read the number of a row and a column: rows are reordered, squares of two by two
// transposed, and pairs of columns stand one behind another.
int64_t place_of(int64_t row, int64_t column, int64_t rows, const Format& format) {
  const int64_t step = format.row_step(), interweave = step / 8;
  row = row / step * step + row % 8 * interweave + row % step / 8;
  if (row % 2 == 0 && column % 2 == 1) {
    ++row, --column;
  } else if (row % 2 == 1 && column % 2 == 0) {
    --row, ++column;
  }
  return (column / 2 * rows + row) * 2 + column % 2;
}

template <typename Number>
void order(const uint8_t* codes, Number* numbers, int64_t rows, int64_t columns, const Format& format) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      uint32_t number = 0;
      for (int64_t i = 0; i < format.codes(); ++i) number |= uint32_t{*codes++} << (kCodeBits * i);
      numbers[place_of(row, column, rows, format)] = static_cast<Number>(number);
    }
  }
}

template <typename Number>
void restore(const Number* numbers, uint8_t* codes, int64_t rows, int64_t columns, const Format& format) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const auto number = static_cast<uint32_t>(numbers[place_of(row, column, rows, format)]);
      for (int64_t i = 0; i < format.codes(); ++i) {
        *codes++ = static_cast<uint8_t>((number >> (kCodeBits * i)) & kCodeMask);
      }
    }
  }
}

}  // namespace

Tensor ordered(const Tensor& codes, const Format& format) {
  const int64_t rows = codes.size(0), columns = codes.size(1) / format.codes();
  Tensor numbers = at::empty({rows, columns}, codes.options().dtype(format.meta));
  const auto* from = codes.const_data_ptr<uint8_t>();
  if (format.is_wide()) {
    order(from, numbers.mutable_data_ptr<int32_t>(), rows, columns, format);
  } else {
    order(from, numbers.mutable_data_ptr<int16_t>(), rows, columns, format);
  }
  return numbers;
}

Tensor restored(const Tensor& meta, int64_t rows, const Format& format) {
  const Tensor numbers = (meta.dim() == 3 ? meta.permute({2, 0, 1}) : meta).contiguous();
  const int64_t columns = numbers.numel() / std::max<int64_t>(rows, 1);
  Tensor codes = at::empty({rows, columns * format.codes()}, meta.options().dtype(at::kByte));
  auto* to = codes.mutable_data_ptr<uint8_t>();
  if (format.is_wide()) {
    restore(numbers.const_data_ptr<int32_t>(), to, rows, columns, format);
  } else {
    restore(numbers.const_data_ptr<int16_t>(), to, rows, columns, format);
  }
  return codes;
}

Tensor product_of(const Tensor& left, const Tensor& right) {
  const Type wide = c10::isIntegralType(left.scalar_type(), false) ? at::kDouble : at::kFloat;
  return at::mm(left.to(wide), right.to(wide));
}

Tensor narrowed(const Tensor& product, Type type) {
  if (type == at::kChar) return product.round().clamp_(-128, 127).to(type);
  if (type == at::kInt) {
    return product.round()
        .clamp_(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max())
        .to(type);
  }
  if (type == at::kFloat8_e4m3fn) return product.clamp(-448, 448).to(type);
  return product.to(type);
}

int64_t compressed_columns(int64_t columns, Type type) {
  const int64_t bits = static_cast<int64_t>(c10::elementSize(type)) * 8;
  return columns / 2 + (columns / Format(type).group * kCodeBits + bits - 1) / bits;
}

Tensor in_one(const Kept& kept, int64_t columns) {
  Tensor whole = at::zeros({kept.values.size(0), columns}, kept.values.options());
  auto* to = static_cast<uint8_t*>(whole.mutable_data_ptr());
  const auto num_bytes = static_cast<size_t>(kept.values.nbytes());
  if (num_bytes == 0) return whole;
  std::memcpy(to, kept.values.const_data_ptr(), num_bytes);
  const auto* codes = kept.codes.const_data_ptr<uint8_t>();
  to += num_bytes;
  for (int64_t i = 0; i < kept.codes.numel(); ++i) {
    to[i / 2] = static_cast<uint8_t>(to[i / 2] | (codes[i] << (i % 2 * kCodeBits)));
  }
  return whole;
}

Kept of_one(const Tensor& given, int64_t columns, const Format& format) {
  const Tensor whole = given.contiguous();
  const int64_t rows = whole.size(0);
  Kept kept{whole.view(-1).narrow(0, 0, rows * columns / 2).view({rows, columns / 2}),
            at::empty({rows, columns / format.group}, whole.options().dtype(at::kByte))};
  const auto* from = static_cast<const uint8_t*>(whole.const_data_ptr()) + kept.values.nbytes();
  auto* codes = kept.codes.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < kept.codes.numel(); ++i) {
    codes[i] = static_cast<uint8_t>((from[i / 2] >> (i % 2 * kCodeBits)) & kCodeMask);
  }
  return kept;
}

}  // namespace loom::glue::semi_structured
