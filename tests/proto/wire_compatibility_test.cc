// The present protos against those that were recorded: what older clients and
// daemons send, and stores hold, must stay readable.
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.pb.h"
#include "skrull/tests/proto/breaking_changes.h"
#include "skrull/v1/planner_service.pb.h"

namespace skrull::testing {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;

constexpr char kOurs[] = "skrull/v1/";

FileDescriptorSet Recorded() {
  FileDescriptorSet set;
  std::ifstream file(SKRULL_RECORDED_DESCRIPTORS, std::ios::binary);
  REQUIRE(set.ParseFromIstream(&file));
  return set;
}

std::vector<std::string> OurFiles(const FileDescriptorSet& set) {
  std::vector<std::string> names;
  for (const FileDescriptorProto& file : set.file()) {
    if (file.name().starts_with(kOurs)) names.push_back(file.name());
  }
  return names;
}

// protoc lists files after those that they import.
void Build(const FileDescriptorSet& set, DescriptorPool* pool) {
  for (const FileDescriptorProto& file : set.file()) {
    REQUIRE(pool->BuildFile(file) != nullptr);
  }
}

TEST_CASE("Wire: nothing that was recorded has changed", "[proto]") {
  // Links the generated code of all our files, through their imports.
  const auto& present = *v1::PlanBatchRequest::descriptor()->file()->pool();
  const FileDescriptorSet set = Recorded();
  REQUIRE(OurFiles(set).size() >= 6);
  DescriptorPool recorded;
  Build(set, &recorded);
  const std::vector<std::string> changes =
      BreakingChanges(recorded, OurFiles(set), present);
  std::string text;
  for (const std::string& change : changes) text += change + "\n";
  INFO(
      "These changes break older clients, daemons or stores; give what is new "
      "a new name and number instead. `./dev record-wire` records additions, "
      "and what no release has had yet.\n"
      << text);
  CHECK(changes.empty());
}

// The messages, fields, values and methods that the cases below change.
FileDescriptorProto* FileOf(FileDescriptorSet* set, const std::string& name) {
  for (FileDescriptorProto& file : *set->mutable_file()) {
    if (file.name() == kOurs + name) return &file;
  }
  throw std::runtime_error("no file " + name);
}

google::protobuf::DescriptorProto* MessageOf(FileDescriptorProto* file,
                                             const std::string& name) {
  for (auto& message : *file->mutable_message_type()) {
    if (message.name() == name) return &message;
  }
  throw std::runtime_error("no message " + name);
}

FieldDescriptorProto* FieldOf(FileDescriptorProto* file,
                              const std::string& message,
                              const std::string& name) {
  for (auto& field : *MessageOf(file, message)->mutable_field()) {
    if (field.name() == name) return &field;
  }
  throw std::runtime_error("no field " + name);
}

struct Change {
  const char* what;
  const char* file;
  std::function<void(FileDescriptorProto*)> make;
  const char* told;  // part of the one line; empty: breaks nothing
};

const std::vector<Change>& Changes() {
  static const std::vector<Change> changes = {
      {"nothing", "job.proto", [](auto*) {}, ""},
      {"a new field", "job.proto",
       [](auto* file) {
         auto* field = MessageOf(file, "CostSpec")->add_field();
         field->set_name("brand_new");
         field->set_number(500);
         field->set_type(FieldDescriptorProto::TYPE_INT64);
         field->set_label(FieldDescriptorProto::LABEL_OPTIONAL);
       },
       ""},
      {"a new method", "planner_service.proto",
       [](auto* file) {
         auto* method = file->mutable_service(0)->add_method();
         method->set_name("BrandNew");
         method->set_input_type(".skrull.v1.GetJobRequest");
         method->set_output_type(".skrull.v1.Job");
       },
       ""},
      {"a field removed", "plan.proto",
       [](auto* file) {
         MessageOf(file, "Placement")->mutable_field()->DeleteSubrange(3, 1);
       },
       "skrull.v1.Placement.degree = 4: is gone"},
      {"a field renumbered", "plan.proto",
       [](auto* file) { FieldOf(file, "Placement", "degree")->set_number(9); },
       "skrull.v1.Placement.degree = 4: is gone"},
      {"a field renamed", "job.proto",
       [](auto* file) {
         FieldOf(file, "LinkTablePoint", "bytes")->set_name("size");
       },
       "is \"size singular int64\""},
      {"a field retyped", "plan.proto",
       [](auto* file) {
         FieldOf(file, "Placement", "degree")
             ->set_type(FieldDescriptorProto::TYPE_INT64);
       },
       "was \"degree singular int32\", is \"degree singular int64\""},
      {"a field of another message", "planner_service.proto",
       [](auto* file) {
         FieldOf(file, "CreateJobRequest", "spec")
             ->set_type_name(".skrull.v1.Calibration");
       },
       "is \"spec singular with presence message skrull.v1.Calibration\""},
      {"a field repeated", "plan.proto",
       [](auto* file) {
         FieldOf(file, "Placement", "degree")
             ->set_label(FieldDescriptorProto::LABEL_REPEATED);
       },
       "repeated"},
      {"a repeated field unpacked", "planner_service.proto",
       [](auto* file) {
         FieldOf(file, "PlanBatchRequest", "lengths")
             ->mutable_options()
             ->set_packed(false);
       },
       "was \"lengths repeated packed int64\""},
      {"a field without its presence", "job.proto",
       [](auto* file) {
         auto* chunks = MessageOf(file, "ChunkFlowSpec");
         for (auto& field : *chunks->mutable_field()) {
           field.clear_proto3_optional();
           field.clear_oneof_index();
         }
         chunks->clear_oneof_decl();
       },
       "skrull.v1.ChunkFlowSpec.chunk_size_tokens = 1: was"},
      {"a field out of its oneof", "planner_service.proto",
       [](auto* file) {
         FieldOf(file, "StreamPlansResponse", "status")->clear_oneof_index();
       },
       "was \"status singular with presence message skrull.v1.RpcStatus in "
       "oneof result\""},
      {"a message removed", "planner_service.proto",
       [](auto* file) {
         // The last one; nothing else refers to it.
         file->mutable_message_type()->RemoveLast();
       },
       "skrull.v1.ErrorDetail: is gone"},
      {"an enum value removed", "report.proto",
       [](auto* file) {
         file->mutable_enum_type(0)->mutable_value()->RemoveLast();
       },
       "skrull.v1.STEP_OUTCOME_FAILED = 3: is gone"},
      {"an enum value renumbered", "report.proto",
       [](auto* file) {
         file->mutable_enum_type(0)->mutable_value(3)->set_number(7);
       },
       "skrull.v1.STEP_OUTCOME_FAILED = 3: is gone"},
      {"a method removed", "planner_service.proto",
       [](auto* file) {
         file->mutable_service(0)->mutable_method()->DeleteSubrange(0, 1);
       },
       "skrull.v1.PlannerService.CreateJob: is gone"},
      {"a method that streams no more", "planner_service.proto",
       [](auto* file) {
         for (auto& method : *file->mutable_service(0)->mutable_method()) {
           if (method.name() == "StreamPlans") method.clear_server_streaming();
         }
       },
       "skrull.v1.PlannerService.StreamPlans: was"},
      {"a method with another answer", "planner_service.proto",
       [](auto* file) {
         file->mutable_service(0)->mutable_method(0)->set_output_type(
             ".skrull.v1.DeleteJobResponse");
       },
       "skrull.v1.PlannerService.CreateJob: was"},
  };
  return changes;
}

TEST_CASE("BreakingChanges: tells each kind of change that breaks", "[proto]") {
  const FileDescriptorSet set = Recorded();
  DescriptorPool recorded;
  Build(set, &recorded);
  for (const Change& change : Changes()) {
    INFO(change.what);
    FileDescriptorSet changed = set;
    change.make(FileOf(&changed, change.file));
    DescriptorPool present;
    Build(changed, &present);
    const std::vector<std::string> told =
        BreakingChanges(recorded, OurFiles(set), present);
    std::string text;
    for (const std::string& line : told) text += line + "\n";
    INFO(text);
    const std::string wanted = change.told;
    CHECK(told.empty() == wanted.empty());
    CHECK(text.find(wanted) != std::string::npos);
  }
}

}  // namespace
}  // namespace skrull::testing
