// A lengths file. Seeds: corpus/lengths_text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "skrull/cli/lengths_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto lengths = skrull::cli::ParseLengths(text, "lengths.txt");
  if (!lengths.ok()) return 0;
  size_t count = 0;
  for (const auto batch : skrull::cli::SplitBatches(*lengths, 3)) {
    count += batch.size();
  }
  if (count != lengths->size()) std::abort();
  return 0;
}
