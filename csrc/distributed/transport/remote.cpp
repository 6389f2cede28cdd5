#include "distributed/transport/remote.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>

#include "driver/error.h"

namespace loom::distributed {

namespace {

struct Hello {
  uint64_t token;
  int32_t rank;
  int32_t has_messages;
};

struct Frame {
  uint64_t number;  // of a round
  uint64_t bytes;   // that follow
  uint64_t is_failure;
};

bool send_all(int socket, const void* data, size_t bytes) noexcept {
  const char* from = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* data, size_t bytes) noexcept {
  char* to = static_cast<char*>(data);
  while (bytes != 0) {
    const ssize_t count = recv(socket, to, bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    to += count;
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

void send_at_once(int socket) noexcept {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  }
  return text;
}

// Of the interface that a variable names, as NCCL and gloo take them.
std::string address_of_interface() {
  for (const char* const variable : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const char* const name = std::getenv(variable);
    ifaddrs* all = nullptr;
    if (name == nullptr || getifaddrs(&all) != 0) continue;
    std::string found;
    for (const ifaddrs* interface = all; interface != nullptr && found.empty();
         interface = interface->ifa_next) {
      if (interface->ifa_addr != nullptr && interface->ifa_addr->sa_family == AF_INET &&
          std::strcmp(interface->ifa_name, name) == 0)
        found = text_of(interface->ifa_addr);
    }
    freeifaddrs(all);
    if (!found.empty()) return found;
  }
  return "";
}

// By which this machine reaches another; nothing is sent.
std::string address_towards(const char* host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  if (host == nullptr || getaddrinfo(host, "9", &hints, &found) != 0) return "";
  const int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in own{};
  socklen_t length = sizeof own;
  std::string text;
  if (connect(probe, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(probe, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
    text = text_of(reinterpret_cast<const sockaddr*>(&own));
  }
  close(probe);
  freeaddrinfo(found);
  return text;
}

std::string own_host() {
  std::string found = address_of_interface();
  if (found.empty()) found = address_towards(std::getenv("MASTER_ADDR"));
  // An address that no route leads to: which of this machine's a message to it would leave by.
  if (found.empty()) found = address_towards("192.0.2.1");
  return found.empty() ? "127.0.0.1" : found;
}

// Not with `+`: GCC 12 warns that moving its results overruns the string's own bytes.
Error failed_to(const char* what) {
  std::string text = "collectives between machines: cannot ";
  return Error(text.append(what).append(": ").append(std::strerror(errno)));
}

}  // namespace

Listener::Listener() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof own;
  constexpr int kBacklog = 1024;
  if (socket_ == -1 || bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      listen(socket_, kBacklog) != 0 ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    const Error error = failed_to("listen");
    if (socket_ != -1) close(socket_);
    throw error;
  }
  std::random_device random;
  address_ = {own_host(), ntohs(own.sin_port), (uint64_t{random()} << 32) | random()};
}

Listener::~Listener() { close(socket_); }

Listener::Arrived Listener::accept(int milliseconds) {
  pollfd entry{socket_, POLLIN, 0};
  if (poll(&entry, 1, milliseconds) != 1) return {};
  const int arrived = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
  if (arrived == -1) return {};
  const timeval patience{5, 0}, forever{0, 0};
  setsockopt(arrived, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  Hello hello{};
  if (!receive_all(arrived, &hello, sizeof hello) || hello.token != address_.token) {
    close(arrived);
    return {};
  }
  setsockopt(arrived, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
  send_at_once(arrived);
  return {arrived, hello.rank, hello.has_messages != 0};
}

int connect_to(const Address& address, int own_rank, bool has_messages, std::string* reason) {
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(address.port));
  const Hello hello{address.token, own_rank, has_messages ? 1 : 0};
  if (made != -1 && inet_pton(AF_INET, address.host.c_str(), &to.sin_addr) == 1 &&
      connect(made, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      send_all(made, &hello, sizeof hello)) {
    send_at_once(made);
    return made;
  }
  *reason =
      "cannot connect to " + address.host + ":" + std::to_string(address.port) + ": " + std::strerror(errno);
  if (made != -1) close(made);
  return -1;
}

Remote::Remote(int rounds, int messages, Segment& mirror, SegmentHeader& own, int own_rank)
    : rounds_(rounds), messages_(messages), mirror_(mirror), own_(own), own_rank_(own_rank) {
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  rounds_thread_ = std::thread([this] { receive_rounds(); });
  messages_thread_ = std::thread([this] { receive_messages(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Remote::~Remote() {
  is_closing_ = true;
  shutdown(rounds_, SHUT_RDWR);
  shutdown(messages_, SHUT_RDWR);
  rounds_thread_.join();
  messages_thread_.join();
  close(rounds_);
  close(messages_);
}

void Remote::end() noexcept {
  num_ended_.fetch_add(1, std::memory_order_acq_rel);
  ring_bell(own_);
}

void Remote::receive_rounds() noexcept {
  SegmentHeader& to = mirror_.header();
  Frame frame{};
  while (receive_all(rounds_, &frame, sizeof frame)) {
    if (frame.is_failure != 0) {
      if (frame.bytes >= sizeof to.failure || !receive_all(rounds_, to.failure, frame.bytes)) break;
      to.failure[frame.bytes] = 0;
      to.has_failed.store(1, std::memory_order_release);
    } else {
      Slot& slot = to.slots[frame.number % SegmentHeader::kNumSlots];
      if (frame.bytes > sizeof slot || !receive_all(rounds_, &slot, frame.bytes)) break;
      to.posted.store(frame.number + 1, std::memory_order_release);
    }
    ring_bell(own_);
  }
  end();
}

void Remote::receive_messages() noexcept {
  Ring& ring = mirror_.ring_to(own_rank_);
  while (!is_closing_) {
    const uint64_t written = ring.written.load(std::memory_order_relaxed);
    const size_t room = Ring::kDataBytes - (written - ring.taken.load(std::memory_order_acquire));
    if (room == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      continue;
    }
    const size_t at = written % Ring::kDataBytes;
    const ssize_t count = recv(messages_, ring.data + at, std::min(room, Ring::kDataBytes - at), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    ring.written.store(written + static_cast<size_t>(count), std::memory_order_release);
    ring_bell(own_);
  }
  end();
}

bool Remote::send_round(uint64_t number, const Slot& slot, size_t bytes) noexcept {
  const Frame frame{number, bytes, 0};
  return send_all(rounds_, &frame, sizeof frame) && send_all(rounds_, &slot, bytes);
}

void Remote::send_failure(const std::string& reason) noexcept {
  const size_t bytes = std::min(reason.size(), SegmentHeader::kFailureBytes - 1);
  const Frame frame{0, bytes, 1};
  if (send_all(rounds_, &frame, sizeof frame)) send_all(rounds_, reason.data(), bytes);
}

size_t Remote::send_message(const char* data, size_t bytes) noexcept {
  const ssize_t sent = send(messages_, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent > 0 ? static_cast<size_t>(sent) : 0;
}

}  // namespace loom::distributed
