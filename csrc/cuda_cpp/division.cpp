#include "cuda_cpp/division.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace loom::cuda_cpp {

#if defined(__x86_64__)

namespace {

// By the numbers that instructions have for them.
constexpr std::array<int, 16> kRegisters = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                            REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                            REG_R12, REG_R13, REG_R14, REG_R15};

struct Division {
  unsigned bits;
  bool is_signed;
  uint64_t divisor;
  const uint8_t* end;  // of the instruction
};

template <typename T>
T read(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// Reads an instruction: prefixes, REX, opcode, ModRM, SIB, displacement (Intel's manual, volume 2, chapter
// 2).
class Reader {
 public:
  explicit Reader(const mcontext_t& context)
      : context_(context), at_(reinterpret_cast<const uint8_t*>(context.gregs[REG_RIP])) {}

  bool read_division(Division& division) {
    bool is_short = false;
    for (;; ++at_) {
      if (*at_ == 0x66) {
        is_short = true;
      } else if (*at_ == 0x64) {
        // A variable of the thread: its segment begins where its first word says.
        asm("movq %%fs:0, %0" : "=r"(segment_));
      } else {
        break;
      }
    }
    if ((*at_ & 0xf0) == 0x40) rex_ = *at_++;
    const uint8_t opcode = *at_++;
    if ((opcode & 0xfe) != 0xf6) return false;
    division.bits = opcode == 0xf6 ? 8 : (rex_ & 8) != 0 ? 64 : is_short ? 16 : 32;
    const uint8_t form = *at_++;
    const unsigned extension = form >> 3 & 7;
    if (extension < 6) return false;  // 6: unsigned, 7: signed
    division.is_signed = extension == 7;
    division.divisor = operand(form >> 6, form & 7, division.bits);
    division.end = at_;
    return true;
  }

 private:
  uint64_t value_of(unsigned number) const {
    return static_cast<uint64_t>(context_.gregs[kRegisters[number]]);
  }

  uint64_t operand(unsigned mode, unsigned number, unsigned bits) {
    if (mode == 3) {
      // Without REX, these are the second bytes of the first four registers.
      if (bits == 8 && rex_ == 0 && number >= 4) return value_of(number - 4) >> 8;
      return value_of(number | (rex_ & 1) << 3);
    }
    const auto* const address = reinterpret_cast<const uint8_t*>(address_of(mode, number));
    switch (bits) {
      case 8:
        return *address;
      case 16:
        return read<uint16_t>(address);
      case 32:
        return read<uint32_t>(address);
      default:
        return read<uint64_t>(address);
    }
  }

  uint64_t address_of(unsigned mode, unsigned number) {
    uint64_t address = segment_;
    bool has_base = true;
    unsigned base = number;
    if (number == 4) {
      const uint8_t scaled = *at_++;
      base = scaled & 7;
      const unsigned index = (scaled >> 3 & 7) | (rex_ & 2) << 2;
      if (index != 4) address += value_of(index) << (scaled >> 6);
      has_base = base != 5 || mode != 0;
    }
    size_t displacement = mode == 1 ? 1 : mode == 2 || !has_base ? 4 : 0;
    const bool is_relative = number == 5 && mode == 0;
    if (is_relative) displacement = 4;
    if (displacement == 1) address += static_cast<uint64_t>(int64_t{read<int8_t>(at_)});
    if (displacement == 4) address += static_cast<uint64_t>(int64_t{read<int32_t>(at_)});
    at_ += displacement;
    // Relative to the end of the instruction, which the displacement ends.
    if (is_relative) return address + reinterpret_cast<uint64_t>(at_);
    return has_base ? address + value_of(base | (rex_ & 1) << 3) : address;
  }

  const mcontext_t& context_;
  const uint8_t* at_;
  uint8_t rex_ = 0;
  uint64_t segment_ = 0;
};

// Writes to the lower bits; of 32, the upper ones become 0.
void set(greg_t& target, unsigned bits, uint64_t value) {
  const uint64_t mask = ~uint64_t{0} >> (64 - bits);
  const uint64_t kept = bits < 32 ? static_cast<uint64_t>(target) & ~mask : 0;
  target = static_cast<greg_t>(kept | (value & mask));
}

}  // namespace

bool finish_division(ucontext_t& context) noexcept {
  Division division{};
  if (!Reader(context.uc_mcontext).read_division(division)) return false;
  auto& registers = context.uc_mcontext.gregs;
  const uint64_t mask = ~uint64_t{0} >> (64 - division.bits);
  const auto dividend = static_cast<uint64_t>(registers[REG_RAX]);
  // CUDA C++ leaves a division by zero undefined. NVIDIA's GPUs set all bits of quotient and rest; 64 bits of
  // which only 32 are needed are divided as 32 (PyTorch's test_fmod_remainder_by_zero_integral has these).
  uint64_t quotient = division.bits == 64 && dividend >> 32 == 0 ? 0xffffffffU : mask;
  uint64_t rest = quotient;
  if (division.is_signed && (division.divisor & mask) == mask) {
    quotient = dividend;  // the smallest number by -1: it is itself
    rest = 0;
  }
  if (division.bits == 8) {
    set(registers[REG_RAX], 16, (rest & mask) << 8 | (quotient & mask));
  } else {
    set(registers[REG_RAX], division.bits, quotient);
    set(registers[REG_RDX], division.bits, rest);
  }
  registers[REG_RIP] = reinterpret_cast<greg_t>(division.end);
  return true;
}

#else

// No division stops the processor. On ARM, quotients are 0.
bool finish_division(ucontext_t&) noexcept { return false; }

#endif

}  // namespace loom::cuda_cpp
