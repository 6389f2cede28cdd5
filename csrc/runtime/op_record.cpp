#include "runtime/op_record.h"

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

namespace loom::runtime {

namespace {

struct Interned {
  std::string name, overload, full_name;
  OpRecord record;
};

struct Table {
  std::mutex mutex;
  std::deque<Interned> ops;  // a deque: records do not move
  std::unordered_map<std::string_view, const OpRecord*> by_name;
};

// Leaked: threads may issue ops until the process ends.
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

}  // namespace

const OpRecord& intern_op(std::string_view name, std::string_view overload, ShapeClass shape_class) {
  std::string full_name(name);
  if (!overload.empty()) full_name.append(".").append(overload);
  const std::lock_guard<std::mutex> lock(table().mutex);
  if (const auto known = table().by_name.find(full_name); known != table().by_name.end())
    return *known->second;
  Interned& own =
      table().ops.emplace_back(Interned{std::string(name), std::string(overload), std::move(full_name), {}});
  own.record = {static_cast<uint32_t>(table().ops.size()), shape_class, own.name.c_str(),
                own.overload.c_str(), own.full_name.c_str()};
  table().by_name.emplace(own.full_name, &own.record);
  return own.record;
}

const OpRecord* find_op(uint32_t id) {
  const std::lock_guard<std::mutex> lock(table().mutex);
  return id == 0 || id > table().ops.size() ? nullptr : &table().ops[id - 1].record;
}

}  // namespace loom::runtime
