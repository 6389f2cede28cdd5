#include "nvml/machine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string_view>

extern char** environ;

namespace loom::nvml {

namespace {

constexpr const char* kVariable = "TORCH_LOOM_NVML";
using Fields = std::map<std::string, std::string, std::less<>>;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Text is written as in addresses of the web: % and two digits for what has a meaning of its own.
std::string unquoted(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      result += static_cast<char>(std::strtol(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

Fields fields_of(std::string_view part) {
  Fields fields;
  for (const std::string_view field : split(part, ';')) {
    const size_t middle = field.find('=');
    if (middle != std::string_view::npos) {
      fields[std::string(field.substr(0, middle))] = unquoted(field.substr(middle + 1));
    }
  }
  return fields;
}

const std::string& text_of(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end()) throw std::runtime_error(std::string(kVariable) + " lacks " + name);
  return found->second;
}

double number_of(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  return found == fields.end() ? 0.0 : std::strtod(found->second.c_str(), nullptr);
}

int whole_of(const Fields& fields, const char* name) { return static_cast<int>(number_of(fields, name)); }

// Equal devices stand in one part, with the identifier of each.
void add_devices(const Fields& fields, std::vector<Device>& devices) {
  Device device;
  device.name = text_of(fields, "name");
  device.memory_bytes = std::strtoull(text_of(fields, "memory_bytes").c_str(), nullptr, 10);
  device.driver_memory_bytes = std::strtoull(text_of(fields, "driver_memory_bytes").c_str(), nullptr, 10);
  device.capability_major = whole_of(fields, "capability_major");
  device.capability_minor = whole_of(fields, "capability_minor");
  device.num_cores = whole_of(fields, "num_cores");
  device.power_idle_watts = number_of(fields, "power_idle_watts");
  device.power_max_watts = number_of(fields, "power_max_watts");
  device.temperature_idle_celsius = whole_of(fields, "temperature_idle_celsius");
  device.temperature_max_celsius = whole_of(fields, "temperature_max_celsius");
  device.clock_mhz = whole_of(fields, "clock_mhz");
  device.clock_idle_mhz = whole_of(fields, "clock_idle_mhz");
  device.memory_clock_mhz = whole_of(fields, "memory_clock_mhz");
  device.memory_bus_bits = whole_of(fields, "memory_bus_bits");
  device.num_links = whole_of(fields, "num_links");
  device.link_gbps = number_of(fields, "link_gbps");
  for (const std::string_view uuid : split(text_of(fields, "uuids"), ',')) {
    device.index = static_cast<int>(devices.size());
    device.uuid = "GPU-" + std::string(uuid);
    devices.push_back(device);
  }
}

// The parts: the Python that has the package; the settings it was made under; the machine; the devices.
enum Part : size_t { kPython, kSettings, kMachine, kFirstDevice };

bool holds(const Fields& settings) {
  for (const auto& [name, text] : settings) {
    const char* const now = std::getenv(name.c_str());
    // A variable that was not set is written without the mark.
    if (now == nullptr ? !text.empty() : text != "=" + std::string(now)) return false;
  }
  return true;
}

Machine parse(const std::string& text) {
  const std::vector<std::string_view> parts = split(text, '|');
  Machine machine;
  machine.text = text;
  const Fields about = fields_of(parts[kMachine]);
  machine.name = text_of(about, "machine");
  machine.driver_version = text_of(about, "driver");
  machine.cuda_version = whole_of(about, "cuda");
  for (size_t i = kFirstDevice; i < parts.size(); ++i) add_devices(fields_of(parts[i]), machine.devices);
  return machine;
}

// The folder that has the package torch_loom: the library is its nvml/lib/libnvidia-ml.so.1.
std::string folder_of_package() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&read_machine), &info) == 0) throw std::runtime_error("no such library");
  std::string path = info.dli_fname;
  for (int i = 0; i < 4; ++i) path.erase(std::min(path.rfind('/'), path.size()));
  return path.empty() ? "." : path;
}

// The settings are Python's to read, and so are the descriptions of chips.
std::string described_by(const std::string& python) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::string folder = folder_of_package();
  const std::string code =
      "import sys; sys.path.insert(0, sys.argv[1]); from torch_loom.nvml import description; "
      "description.main()";
  const char* const arguments[] = {python.c_str(), "-c", code.c_str(), folder.c_str(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int failure =
      posix_spawnp(&child, python.c_str(), &actions, nullptr, const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  while (failure == 0) {
    const ssize_t count = read(ends[0], buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  // The program may collect all of its children itself: what was written counts, not the status.
  while (failure == 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace

const Device* Machine::find(Handle handle) const {
  for (const Device& device : devices) {
    if (&device == handle) return handle;
  }
  return nullptr;
}

Machine read_machine() {
  const char* const given = std::getenv(kVariable);
  if (given == nullptr) throw std::runtime_error("this process is not under `loom run`");
  const std::vector<std::string_view> parts = split(given, '|');
  if (parts.size() >= kFirstDevice && holds(fields_of(parts[kSettings]))) return parse(given);
  const std::string described = described_by(unquoted(parts[kPython]));
  if (split(described, '|').size() < kFirstDevice) throw std::runtime_error("the settings cannot be used");
  return parse(described);
}

}  // namespace loom::nvml
