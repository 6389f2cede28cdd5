// The store in which ranks find each other. What goes wrong with it is an Error that names it.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace loom::distributed {

// A connection of its own where the store has such: a thread of a stream asks it while the program may be
// waiting for something else. The time-out is the store's.
c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store);

class Rendezvous {
 public:
  explicit Rendezvous(const c10::intrusive_ptr<c10d::Store>& store);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void set(const std::string& key, const std::string& text);
  // Whether the key is there; its text then.
  bool find(const std::string& key, std::string* text);

 private:
  // PyTorch's store of a file reads on for ever where the file is there no more, or is another one.
  void check_file() const;
  template <typename F>
  auto asked(const F& ask) const -> decltype(ask());

  const c10::intrusive_ptr<c10d::Store> store_;
  std::string path_;  // of the file that it is; empty: it is no file
  int file_ = -1;     // it, open, once something has been set
};

}  // namespace loom::distributed
