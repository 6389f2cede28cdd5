// What nearly every file without PyTorch's headers includes, compiled once (setup.py). A file still includes
// what it uses: without this header it compiles, too, only slower.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>
