#pragma once

namespace hyla::extend {

// Seconds of one fp32 product of n x n matrices on each of cpu_threads() threads at once, built for the machine's vector units like the CPU backend.
double sgemm_seconds(int n);

}  // namespace hyla::extend
