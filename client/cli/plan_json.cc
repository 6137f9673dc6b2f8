#include "skrull/cli/plan_json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"
#include "skrull/client/refusal.h"

namespace skrull::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

template <typename Number>
void AppendNumber(Number value, std::string* out) {
  char buffer[32];
  out->append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

void AppendDouble(double value, std::string* out) {
  if (std::isfinite(value)) {
    AppendNumber(value, out);
  } else if (std::isnan(value)) {
    *out += "\"NaN\"";  // as protobuf writes it; JSON has no such number
  } else {
    *out += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  }
}

void AppendString(const std::string& value, std::string* out) {
  *out += nlohmann::json(value).dump(-1, ' ', false,
                                     nlohmann::json::error_handler_t::replace);
}

// The enum's name; its number if this build does not know it.
void AppendEnum(const FieldDescriptor& field, int number, std::string* out) {
  const auto* value = field.enum_type()->FindValueByNumber(number);
  if (value != nullptr) {
    AppendString(value->name(), out);
  } else {
    AppendNumber(number, out);
  }
}

// The value of a field, or of its element `index` when the field is repeated.
void AppendValue(const Message& message, const FieldDescriptor& field,
                 int index, std::string* out) {
  const Reflection& get = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      AppendNumber(repeated ? get.GetRepeatedInt32(message, &field, index)
                            : get.GetInt32(message, &field),
                   out);
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      AppendNumber(repeated ? get.GetRepeatedInt64(message, &field, index)
                            : get.GetInt64(message, &field),
                   out);
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      AppendNumber(repeated ? get.GetRepeatedUInt32(message, &field, index)
                            : get.GetUInt32(message, &field),
                   out);
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      AppendNumber(repeated ? get.GetRepeatedUInt64(message, &field, index)
                            : get.GetUInt64(message, &field),
                   out);
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      AppendDouble(repeated ? get.GetRepeatedDouble(message, &field, index)
                            : get.GetDouble(message, &field),
                   out);
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      AppendDouble(repeated ? get.GetRepeatedFloat(message, &field, index)
                            : get.GetFloat(message, &field),
                   out);
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      *out += (repeated ? get.GetRepeatedBool(message, &field, index)
                        : get.GetBool(message, &field))
                  ? "true"
                  : "false";
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      AppendEnum(field,
                 repeated ? get.GetRepeatedEnumValue(message, &field, index)
                          : get.GetEnumValue(message, &field),
                 out);
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      AppendString(repeated ? get.GetRepeatedString(message, &field, index)
                            : get.GetString(message, &field),
                   out);
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      AppendJson(repeated ? get.GetRepeatedMessage(message, &field, index)
                          : get.GetMessage(message, &field),
                 out);
      return;
  }
}

}  // namespace

void AppendJson(const Message& message, std::string* out) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const char* separator = "{";
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!field.is_repeated() && field.message_type() != nullptr &&
        !message.GetReflection()->HasField(message, &field)) {
      continue;
    }
    absl::StrAppend(out, separator, "\"", field.name(), "\":");
    separator = ",";
    if (!field.is_repeated()) {
      AppendValue(message, field, 0, out);
      continue;
    }
    out->push_back('[');
    const int size = message.GetReflection()->FieldSize(message, &field);
    for (int index = 0; index < size; ++index) {
      if (index > 0) out->push_back(',');
      AppendValue(message, field, index, out);
    }
    out->push_back(']');
  }
  absl::StrAppend(out, *separator == '{' ? "{}" : "}");
}

std::string RefusalJson(int64_t batch, const absl::Status& status) {
  const ordered_json error = {{"code", absl::StatusCodeToString(status.code())},
                              {"message", MessageWithoutRequestId(status)}};
  return ordered_json({{"batch", batch}, {"error", error}})
      .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

absl::StatusOr<PlanLine> ParsePlanLine(const std::string& line) {
  PlanLine parsed;
  const nlohmann::json object =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  const auto error = object.find("error");
  if (error == object.end()) {
    const auto status =
        google::protobuf::util::JsonStringToMessage(line, &parsed.plan);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a plan: ", std::string(status.message())));
    }
    parsed.planned = true;
    return parsed;
  }
  const auto batch = object.find("batch");
  if (batch == object.end() || !batch->is_number_integer() ||
      !error->is_object() || !error->contains("code") ||
      !(*error)["code"].is_string()) {
    return absl::InvalidArgumentError(
        "not a refusal: it needs \"batch\" and \"error\" with a \"code\"");
  }
  parsed.batch = batch->get<int64_t>();
  parsed.code = (*error)["code"].get<std::string>();
  return parsed;
}

}  // namespace skrull::cli
