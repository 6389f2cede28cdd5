// What variables of the environment ask of a group, those of NCCL's watchdog among them; each group reads
// them when it is made.
#pragma once

#include <functional>

namespace loom::distributed {

struct Watchdog {
  // What does not belong together is refused; else it waits, as under NCCL.
  bool checks = true;
  bool ends_process = true;     // when the time of an operation is over, under NCCL's rules
  bool blocks_host = false;     // waiting for a work makes the host wait
  bool finds_nan = false;       // numbers that a rank gives are no NaN
  bool is_timed = false;        // works know how long they took
  bool reports_desync = false;  // where each rank stood, when the time of an operation is over
};

// Reads the variables, and may throw. Until it is set, groups have the defaults.
void set_watchdog_reader(std::function<Watchdog()> read);
Watchdog read_watchdog();

}  // namespace loom::distributed
