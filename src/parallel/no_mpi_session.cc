// A build without MPI.
#include "base/error.h"
#include "parallel/mpi_session.h"

namespace deepinfer {

struct MpiSession::State {};

MpiSession::MpiSession(const Options&) {
  throw Error(Code::kUnsupported, "mpirun: this program was built without MPI, start it alone");
}
MpiSession::~MpiSession() = default;
Comm* MpiSession::world() const { return nullptr; }
void MpiSession::Fail(const std::string&) {}
void MpiSession::End() {}

}  // namespace deepinfer
