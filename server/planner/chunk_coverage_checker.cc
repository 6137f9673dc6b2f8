#include "skrull/planner/chunk_coverage_checker.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "skrull/planner/checker_status.h"

namespace skrull {
namespace {

using checker::Broken;

// A chunk of a split sequence: sequence, group_index, chunk.
using Part = std::tuple<int32_t, int32_t, int32_t>;

std::string SequenceName(int32_t sequence) {
  return absl::StrCat("sequence ", sequence);
}

absl::Status Twice(int32_t sequence) {
  return Broken("coverage", SequenceName(sequence),
                "it is placed a second time");
}

// The parts of one sequence, by group_index, tile it. Fills their links.
absl::Status CheckGroup(const ChunkPlan& plan, int64_t length,
                        std::span<const Part> parts,
                        std::vector<ChunkLinks>* links) {
  const auto chunk_of = [&](const Part& part) -> const Chunk& {
    return plan.chunks[static_cast<size_t>(std::get<2>(part))];
  };
  const std::string where = SequenceName(std::get<0>(parts[0]));
  const Chunk& first = chunk_of(parts[0]);
  int64_t end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Chunk& chunk = chunk_of(parts[i]);
    const int32_t at = std::get<2>(parts[i]);
    const TokenRange range = chunk.pieces[0].range;
    if (chunk.group_index != static_cast<int64_t>(i) || range.begin != end) {
      return Broken("coverage", where,
                    absl::StrCat("chunk ", at, ", number ", chunk.group_index,
                                 " of its chunks, begins at ", range.begin,
                                 "; number ", i, " begins at ", end));
    }
    if (chunk.dp_rank != first.dp_rank ||
        chunk.group_size != first.group_size) {
      return Broken("coverage", where,
                    absl::StrCat("chunks ", std::get<2>(parts[0]), " and ", at,
                                 " differ in DP rank or group size"));
    }
    ChunkLinks& own = (*links)[static_cast<size_t>(at)];
    own.first = std::get<2>(parts[0]);
    if (i > 0) own.before = std::get<2>(parts[i - 1]);
    if (i + 1 < parts.size()) own.after = std::get<2>(parts[i + 1]);
    end = range.end;
  }
  if (static_cast<int64_t>(parts.size()) != first.group_size || end != length) {
    return Broken("coverage", where,
                  absl::StrCat(parts.size(), " chunks of ", first.group_size,
                               " end at ", end, " of ", length, " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPieceRange(std::span<const int64_t> lengths, size_t chunk,
                             const ChunkPiece& piece) {
  const auto where = [&] {
    return absl::StrCat("chunk ", chunk, ", ", SequenceName(piece.sequence));
  };
  if (piece.sequence < 0 ||
      static_cast<size_t>(piece.sequence) >= lengths.size()) {
    return Broken(
        "coverage", where(),
        absl::StrCat("the batch holds sequences 0 .. ", lengths.size() - 1));
  }
  const int64_t length = lengths[static_cast<size_t>(piece.sequence)];
  if (piece.token_count != length) {
    return Broken("coverage", where(),
                  absl::StrCat("token_count is ", piece.token_count,
                               ", the batch's length ", length));
  }
  const TokenRange range = piece.range;
  if (range.begin < 0 || range.begin >= range.end || range.end > length) {
    return Broken("coverage", where(),
                  absl::StrCat("[", range.begin, ", ", range.end,
                               ") is no part of its ", length, " tokens"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ChunkLinks>> CheckChunkCoverage(
    std::span<const int64_t> lengths, const ChunkPlan& plan) {
  std::vector<ChunkLinks> links(plan.chunks.size());
  std::vector<bool> placed(lengths.size(), false);
  std::vector<Part> parts;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const Chunk& chunk = plan.chunks[i];
    links[i].first = static_cast<int32_t>(i);
    for (const ChunkPiece& piece : chunk.pieces) {
      if (chunk.group_size > 1) {
        parts.emplace_back(piece.sequence, chunk.group_index,
                           static_cast<int32_t>(i));
        continue;
      }
      const auto sequence = static_cast<size_t>(piece.sequence);
      if (piece.range.size() != lengths[sequence]) {
        return Broken("coverage", SequenceName(piece.sequence),
                      absl::StrCat("a part of it is in chunk ", i,
                                   ", which is for whole sequences"));
      }
      if (placed[sequence]) return Twice(piece.sequence);
      placed[sequence] = true;
    }
  }
  std::sort(parts.begin(), parts.end());
  for (size_t i = 0; i < parts.size();) {
    const int32_t sequence = std::get<0>(parts[i]);
    size_t end = i;
    while (end < parts.size() && std::get<0>(parts[end]) == sequence) ++end;
    const auto index = static_cast<size_t>(sequence);
    if (placed[index]) return Twice(sequence);
    placed[index] = true;
    if (absl::Status s = CheckGroup(
            plan, lengths[index], std::span(parts).subspan(i, end - i), &links);
        !s.ok()) {
      return s;
    }
    i = end;
  }
  const auto missing = std::find(placed.begin(), placed.end(), false);
  if (missing == placed.end()) return links;
  return Broken("coverage", absl::StrCat("sequence ", missing - placed.begin()),
                "it is in no chunk");
}

}  // namespace skrull
