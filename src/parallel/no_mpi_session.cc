// A build without MPI.
#include "base/error.h"
#include "parallel/mpi_session.h"

namespace deepinfer {

MpiSession::MpiSession(std::chrono::milliseconds) {
  throw Error(Code::kUnsupported, "mpirun: this program was built without MPI, start it alone");
}
MpiSession::~MpiSession() = default;
void MpiSession::End() {}

}  // namespace deepinfer
