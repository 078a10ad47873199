// How fast this machine reads memory.
#pragma once

namespace deepinfer {

// Bytes per second that `threads` threads read together from a buffer that the caches cannot hold:
// the best of several passes, about 0.3 s. The bound for generating, which reads every weight of a
// token once.
double MeasureReadBandwidth(int threads);

}  // namespace deepinfer
