// Symmetric contractions as calls of XLA's foreign function interface on the CPU.
//
// The operands are c, x, elements, gb and the directions. Python has checked shapes and types. The kind is `value` (no
// gb; the result is B), `gradient` (the result is gx) or `gradients` (no c; the result is gc).
#include <string_view>

#include "call.h"
#include "contraction.h"
#include "kernels.h"

namespace trnqc {

// Numbers in the layout of the kernels. The memory lives as long as this object.
class Layout {
 public:
  Layout(const Contraction& shape, int64_t size) : shape_(shape), size_(size) {}

  intptr_t room(int64_t count) {
    memory_.emplace_back(std::max<int64_t>(1, count * size_), char(0));
    return reinterpret_cast<intptr_t>(memory_.back().data());
  }

  intptr_t padded(const ffi::AnyBuffer& rows) {
    if (shape_.padded() == shape_.channels) return reinterpret_cast<intptr_t>(rows.untyped_data());
    const int64_t count = static_cast<int64_t>(rows.element_count()) / shape_.channels;
    const intptr_t result = room(count * shape_.padded());
    copy_rows(rows.untyped_data(), shape_.channels, reinterpret_cast<void*>(result), shape_.padded(), count, size_);
    return result;
  }

 private:
  const Contraction& shape_;
  int64_t size_;
  std::vector<std::vector<char>> memory_;
};

static Groups groups_in(const ffi::AnyBuffer& elements, int64_t known, int64_t size) {
  const auto count = static_cast<int64_t>(elements.element_count());
  if (elements.element_type() == ffi::DataType::S64)
    return Groups(elements.typed_data<int64_t>(), count, known, size);
  return Groups(elements.typed_data<int32_t>(), count, known, size);
}

static void run(ffi::ThreadPool& pool, ffi::RemainingArgs& args, ffi::AnyBuffer result, const std::string& kind,
                void* kernel, const Contraction& shape) {
  const bool of_c = kind == "gradients", of_x = kind == "gradient", direct = shape.padded() == shape.channels;
  const auto operand = [&](size_t n) { return args.get<ffi::AnyBuffer>(n).value(); };
  const size_t first = of_c ? 0 : 1, directions = first + (kind == "value" ? 2 : 3);
  const auto x = operand(first);
  const int64_t known = of_c ? result.dimensions()[0] : operand(0).dimensions()[0];
  const int64_t nodes = x.dimensions()[0], size = x.element_type() == ffi::DataType::F64 ? 8 : 4;
  const int64_t coefficients = known * shape.blocks() * shape.terms * shape.lanes;
  Layout layout(shape, size);
  // For gc the coefficients are zeros: they only enter gx, which is not returned.
  Parameters operands{layout.room(coefficients), layout.padded(x)};
  void* c = reinterpret_cast<void*>(operands[0]);
  if (!of_c) copy_coefficients(shape, operand(0).untyped_data(), c, known, size, true);
  for (size_t n = directions; n < args.size(); ++n) operands.push_back(layout.padded(operand(n)));
  if (of_c || of_x) operands.push_back(layout.padded(operand(first + 2)));
  const int64_t rows = nodes * (of_c || of_x ? shape.x : shape.b);
  const bool in_place = direct && !of_c;
  void* own = result.untyped_data();
  const intptr_t out = in_place ? reinterpret_cast<intptr_t>(own) : layout.room(rows * shape.padded());
  operands.push_back(out);
  if (of_c) operands.push_back(layout.room(coefficients));
  contract(kernel, shape, of_c, groups_in(operand(first + 1), known, of_c ? 0 : GROUP_NODES), operands,
           [&](int64_t count, const auto& function) {
             if (count) in_parallel(pool, count, count, function);
           });
  if (of_c) {
    copy_coefficients(shape, own, reinterpret_cast<void*>(operands.back()), known, size, false);
  } else if (!in_place) {
    copy_rows(reinterpret_cast<void*>(out), shape.padded(), own, shape.channels, rows, size);
  }
}

static ffi::Error contract_symmetrically(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets results,
                                         std::string_view kind, std::string_view files,
                                         ffi::Span<const int64_t> sizes) {
  try {
    const Contraction shape{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
    const auto result = *results.get<ffi::AnyBuffer>(0).value();
    run(pool, args, result, std::string(kind), kernels_in(std::string(files)).at(0), shape);
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
  return ffi::Error::Success();
}

}  // namespace trnqc

XLA_FFI_DEFINE_HANDLER_SYMBOL(trnqc_cg_contraction, trnqc::contract_symmetrically,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<std::string_view>("kind")
                                  .Attr<std::string_view>("kernels")
                                  .Attr<xla::ffi::Span<const int64_t>>("sizes"));
