#include "skrull/cuda/chunk_program.h"

#include <cstddef>
#include <string>
#include <utility>

#include "skrull/cuda/chunk_order.h"
#include "skrull/cuda/chunk_store.h"

namespace skrull::exec {
namespace {

// When the operations of each group begin, go backward first, and end.
struct GroupTimes {
  int64_t first = -1;
  int64_t first_backward = -1;
  int64_t last = -1;
};

// Sets the operations and returns when groups use the store.
std::vector<GroupTimes> FillOperations(
    const std::vector<ChunkOperation>& operations, const ChunkGroups& groups,
    ChunkProgram* program) {
  std::vector<GroupTimes> times(groups.groups.size());
  for (size_t i = 0; i < operations.size(); ++i) {
    const auto [pass, chunk] = operations[i];
    const auto c = static_cast<size_t>(chunk);
    GroupTimes& group = times[static_cast<size_t>(groups.group_of[c])];
    const auto now = static_cast<int64_t>(i);
    if (group.first < 0) group.first = now;
    group.last = now;
    const bool begins =
        pass == ChunkPass::kBackward && group.first_backward < 0;
    if (begins) group.first_backward = now;
    program->operations.push_back(
        {.pass = pass,
         .chunk = chunk,
         .begins_gradients = begins && program->chunks[c].maps.dependent});
  }
  return times;
}

void PlaceGroups(const ChunkGroups& groups,
                 const std::vector<GroupTimes>& times, int32_t tail_rows,
                 ChunkProgram* program) {
  std::vector<RowsInUse> keys;
  std::vector<RowsInUse> gradients;
  for (size_t g = 0; g < times.size(); ++g) {
    const ChunkGroup& group = groups.groups[g];
    const ChunkMaps& first =
        program->chunks[static_cast<size_t>(group.chunks[0])].maps;
    keys.push_back(
        {.rows = first.is_stored() ? group.token_count + tail_rows : 0,
         .first_operation = times[g].first,
         .last_operation = times[g].last});
    gradients.push_back({.rows = first.dependent ? group.token_count : 0,
                         .first_operation = times[g].first_backward,
                         .last_operation = times[g].last});
  }
  const RowPlaces key_places = PlaceRows(keys);
  const RowPlaces gradient_places = PlaceRows(gradients);
  program->store_rows = key_places.rows;
  program->gradient_rows = gradient_places.rows;
  for (size_t c = 0; c < program->chunks.size(); ++c) {
    ProgramChunk& chunk = program->chunks[c];
    if (!chunk.maps.is_stored()) continue;
    const auto g = static_cast<size_t>(groups.group_of[c]);
    chunk.group = {.first_row = key_places.first_rows[g],
                   .first_gradient_row = gradient_places.first_rows[g],
                   .rows = groups.groups[g].token_count};
  }
}

}  // namespace

Result<ChunkProgram> BuildChunkProgram(const RankChunkPlan& plan, int32_t rank,
                                       int32_t tail_rows) {
  const Result<ChunkGroups> groups = GroupChunks(plan.chunks);
  SKRULL_EXEC_RETURN_IF_ERROR(groups.status());
  const Result<std::vector<ChunkOperation>> operations =
      ResolveOperations(plan, *groups);
  SKRULL_EXEC_RETURN_IF_ERROR(operations.status());
  ChunkProgram program;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    Result<ChunkMaps> maps =
        BuildChunkMaps(plan.chunks[c], rank, groups->begin_of[c]);
    SKRULL_EXEC_RETURN_IF_ERROR(maps.status());
    if (c > 0 && maps->block != program.chunks[0].maps.block) {
      return InvalidArgument("chunks " + std::to_string(plan.chunks[0].chunk) +
                             " and " + std::to_string(plan.chunks[c].chunk) +
                             " are on two blocks");
    }
    program.chunks.push_back({.maps = *std::move(maps), .group = {}});
  }
  PlaceGroups(*groups, FillOperations(*operations, *groups, &program),
              tail_rows, &program);
  return program;
}

}  // namespace skrull::exec
