// DI_CHECK: invariants of the program itself. A failure is a bug; it prints the place and the
// values and aborts.
#pragma once

#include <sstream>

namespace deepinfer::internal {

// Collects the message of a failed check; the destructor prints it and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace deepinfer::internal

#define DI_CHECK(condition)                        \
  (condition) ? (void)0                            \
              : ::deepinfer::internal::Voidify() & \
                    ::deepinfer::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#ifdef NDEBUG
#define DI_DCHECK(condition) DI_CHECK(true || (condition))
#else
#define DI_DCHECK(condition) DI_CHECK(condition)
#endif
