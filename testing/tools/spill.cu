// Sixty-four values live at once: they fit 255 registers and do not fit 24.
__global__ void keep_values(const float* in, float* out) {
  float value[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) value[i] = in[threadIdx.x + i * 256];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i)
#pragma unroll
    for (int j = 0; j < 64; j += 17) value[i] = value[i] * value[(i + j + 1) % 64] + value[j];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) sum = sum * value[i] + value[i];
  out[threadIdx.x] = sum;
}
