// --ranks: several ranks without a command line for mpirun.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace deepinfer {

// Thrown while a command line is read: it wants so many ranks, and none have been started.
struct RanksWanted {
  int ranks;
};

// The value of --ranks: a number, or "auto", a rank for each memory node of this machine. Throws
// Error(kInvalid) for anything else.
int ParseRanks(const std::string& text);

// Memory nodes that have some of `cpus`; 1 where the system does not tell.
int MemoryNodes(const std::vector<int>& cpus,
                const std::string& sysfs = "/sys/devices/system/node");

// What mpirun is told about so many ranks on a machine of `cores` and `nodes`: cores of its own for
// each, of one node where it can be.
std::vector<std::string> PlacementOptions(int ranks, int cores, int nodes);

// Runs this program again, with the same arguments, on the processes of an mpirun. SIGTERM and
// SIGINT go to rank 0, which ends the others; mpirun itself would kill them all a second later.
// Returns the exit status. Throws Error(kNotFound) when there is no mpirun.
int RunOnRanks(int ranks, std::span<char* const> args);

}  // namespace deepinfer
