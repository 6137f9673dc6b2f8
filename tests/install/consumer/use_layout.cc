// Uses skrull::layout as an installed package.
#include <cstdio>
#include <vector>

#include "skrull/planner/layout.h"

int main() {
  const std::vector<skrull::SequencePlacement> placements = {
      {.sequence = 0, .token_count = 7, .first_rank = 0, .degree = 2}};
  const auto segments = skrull::RankSegments(placements, 0);
  const auto cu_seqlens = skrull::CuSeqlens(segments);
  std::printf("%d rows\n", cu_seqlens.back());
  return cu_seqlens.back() == 4 ? 0 : 1;
}
