// Runs the tests whose names contain the argument, or all.
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "check.h"

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  int num_run = 0, num_failed = 0;
  for (const loom::test::Test& test : loom::test::tests()) {
    if (std::string(test.name).find(wanted) == std::string::npos) continue;
    ++num_run;
    const auto start = std::chrono::steady_clock::now();
    std::string problem;
    try {
      test.run();
    } catch (const std::exception& error) {
      problem = error.what();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!problem.empty()) ++num_failed;
    std::printf("%s %-55s %6.2f s %s\n", problem.empty() ? "ok    " : "FAILED", test.name, seconds.count(),
                problem.c_str());
    std::fflush(stdout);
  }
  std::printf("%d tests, %d failed\n", num_run, num_failed);
  return num_failed != 0 || num_run == 0;
}
