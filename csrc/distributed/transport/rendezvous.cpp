#include "distributed/transport/rendezvous.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "distributed/transport/transport.h"

namespace loom::distributed {

c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store) {
  try {
    c10::intrusive_ptr<c10d::Store> own = store->clone();
    own->setTimeout(store->getTimeout());
    return own;
  } catch (const std::exception&) {
    return store;  // of a kind that has no connections, or that will fail where it is asked
  }
}

namespace {

std::string file_of(const c10::intrusive_ptr<c10d::Store>& store) {
  c10::intrusive_ptr<c10d::Store> innermost = store;
  if (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
    innermost = prefixed->getUnderlyingNonPrefixStore();
  const auto* const file = dynamic_cast<const c10d::FileStore*>(innermost.get());
  return file == nullptr ? "" : file->getPath();
}

}  // namespace

Rendezvous::Rendezvous(const c10::intrusive_ptr<c10d::Store>& store)
    : store_(own_connection(store)), path_(file_of(store_)) {}

Rendezvous::~Rendezvous() {
  if (file_ >= 0) close(file_);
}

void Rendezvous::check_file() const {
  struct stat found{};
  if (file_ < 0 || fstat(file_, &found) != 0 || found.st_nlink != 0) return;
  throw Error("the file of the group's store, " + path_ +
              ", was removed or replaced while the group needed it: keep it until all ranks have ended");
}

template <typename F>
auto Rendezvous::asked(const F& ask) const -> decltype(ask()) {
  check_file();
  try {
    return ask();
  } catch (const c10::Error& error) {
    throw Error(std::string("the group's store failed: ") + error.what_without_backtrace() +
                (path_.empty() ? ". The process that keeps it may have ended" : " (" + path_ + ")"));
  }
}

void Rendezvous::set(const std::string& key, const std::string& text) {
  asked([&] { store_->set(key, std::vector<uint8_t>(text.begin(), text.end())); });
  // As long as it is open no other file has its number.
  if (!path_.empty() && file_ < 0) file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
}

bool Rendezvous::find(const std::string& key, std::string* text) {
  return asked([&] {
    if (!store_->check({key})) return false;
    const std::vector<uint8_t> told = store_->get(key);
    text->assign(told.begin(), told.end());
    return true;
  });
}

}  // namespace loom::distributed
