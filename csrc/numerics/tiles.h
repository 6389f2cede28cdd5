// Packed tiles: 32 x 32 elements as four faces of 16 x 16 (top left, top right, bottom left, bottom right),
// each in rows. A tile of a block format begins with 64 exponent bytes, one for each row of a face. Elements
// below 8 bits lie in a byte from its low bits on; wider ones are little-endian. An exponent byte of 255 says
// that the block is NaN.
#pragma once

#include <cstdint>

#include "numerics/formats.h"

namespace loom::numerics {

// A matrix of floats; rows and columns that a tile lacks are zero.
struct Matrix {
  const float* data;
  int64_t rows, columns;  // contiguous
};

constexpr int64_t tiles_across(int64_t elements) { return (elements + kTile - 1) / kTile; }

// Converts to `format` and encodes the tile at (tile_row, tile_column) into tile_bytes(format) bytes. Returns
// how many elements have no code: NaNs in Lf8.
int64_t pack_tile(Format format, const Matrix& matrix, int64_t tile_row, int64_t tile_column, uint8_t* bytes,
                  Counts& counts);

// The same for integers, exact beyond float32: saturated to an integer format.
void pack_integer_tile(Format format, const int64_t* data, int64_t rows, int64_t columns, int64_t tile_row,
                       int64_t tile_column, uint8_t* bytes);

// Decodes a tile into its part of a contiguous matrix. False: it has an exponent that the format lacks.
bool unpack_tile(Format format, const uint8_t* bytes, float* matrix, int64_t rows, int64_t columns,
                 int64_t tile_row, int64_t tile_column);

}  // namespace loom::numerics
