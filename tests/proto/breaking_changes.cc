#include "skrull/tests/proto/breaking_changes.h"

namespace skrull::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::OneofDescriptor;
using google::protobuf::ServiceDescriptor;

// All of a field that its wire, text and JSON forms depend on, but for its
// number.
std::string Shape(const FieldDescriptor& field) {
  std::string shape = field.name();
  shape += field.is_repeated() ? " repeated" : " singular";
  if (field.is_packed()) shape += " packed";
  if (field.has_presence()) shape += " with presence";
  shape += std::string(" ") + field.type_name();
  if (field.message_type() != nullptr) {
    shape += " " + field.message_type()->full_name();
  }
  if (field.enum_type() != nullptr) {
    shape += " " + field.enum_type()->full_name();
  }
  const OneofDescriptor* const oneof = field.real_containing_oneof();
  if (oneof != nullptr) shape += " in oneof " + oneof->name();
  return shape;
}

std::string Shape(const MethodDescriptor& method) {
  return std::string(method.client_streaming() ? "stream " : "") +
         method.input_type()->full_name() + " -> " +
         (method.server_streaming() ? "stream " : "") +
         method.output_type()->full_name();
}

class Comparison {
 public:
  explicit Comparison(const DescriptorPool& new_pool) : new_pool_(new_pool) {}

  void Compare(const FileDescriptor& file) {
    const FileDescriptor* const now = new_pool_.FindFileByName(file.name());
    if (now == nullptr) return Gone(file.name());
    if (now->package() != file.package() || now->syntax() != file.syntax()) {
      Add(file.name() + ": another package or syntax");
    }
    for (int i = 0; i < file.message_type_count(); ++i) {
      Compare(*file.message_type(i));
    }
    for (int i = 0; i < file.enum_type_count(); ++i) {
      Compare(*file.enum_type(i));
    }
    for (int i = 0; i < file.service_count(); ++i) Compare(*file.service(i));
  }

  std::vector<std::string> changes() const { return changes_; }

 private:
  void Add(const std::string& change) { changes_.push_back(change); }
  void Gone(const std::string& what) { Add(what + ": is gone"); }

  void Compare(const Descriptor& message) {
    const Descriptor* const now =
        new_pool_.FindMessageTypeByName(message.full_name());
    if (now == nullptr) return Gone(message.full_name());
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      const std::string what = message.full_name() + "." + field.name() +
                               " = " + std::to_string(field.number());
      const FieldDescriptor* const present =
          now->FindFieldByNumber(field.number());
      if (present == nullptr) {
        Gone(what);
      } else if (Shape(*present) != Shape(field)) {
        Add(what + ": was \"" + Shape(field) + "\", is \"" + Shape(*present) +
            "\"");
      }
    }
    for (int i = 0; i < message.nested_type_count(); ++i) {
      Compare(*message.nested_type(i));
    }
    for (int i = 0; i < message.enum_type_count(); ++i) {
      Compare(*message.enum_type(i));
    }
  }

  void Compare(const EnumDescriptor& type) {
    const EnumDescriptor* const now =
        new_pool_.FindEnumTypeByName(type.full_name());
    if (now == nullptr) return Gone(type.full_name());
    for (int i = 0; i < type.value_count(); ++i) {
      const EnumValueDescriptor& value = *type.value(i);
      const EnumValueDescriptor* const present =
          now->FindValueByName(value.name());
      if (present == nullptr || present->number() != value.number()) {
        Gone(value.full_name() + " = " + std::to_string(value.number()));
      }
    }
  }

  void Compare(const ServiceDescriptor& service) {
    const ServiceDescriptor* const now =
        new_pool_.FindServiceByName(service.full_name());
    if (now == nullptr) return Gone(service.full_name());
    for (int i = 0; i < service.method_count(); ++i) {
      const MethodDescriptor& method = *service.method(i);
      const MethodDescriptor* const present =
          now->FindMethodByName(method.name());
      if (present == nullptr) {
        Gone(method.full_name());
      } else if (Shape(*present) != Shape(method)) {
        Add(method.full_name() + ": was \"" + Shape(method) + "\", is \"" +
            Shape(*present) + "\"");
      }
    }
  }

  const DescriptorPool& new_pool_;
  std::vector<std::string> changes_;
};

}  // namespace

std::vector<std::string> BreakingChanges(const DescriptorPool& old_pool,
                                         const std::vector<std::string>& files,
                                         const DescriptorPool& new_pool) {
  Comparison comparison(new_pool);
  for (const std::string& file : files) {
    comparison.Compare(*old_pool.FindFileByName(file));
  }
  return comparison.changes();
}

}  // namespace skrull::testing
