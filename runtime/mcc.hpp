/* Compiled networks from C++17: what mcc_load.h and mcc.h do, with destructors, spans and exceptions. One header; mcc_load.c is
 * compiled into the program (with C++: mcc_load.cpp), and nothing else is needed.
 *
 *     mcc::model net("net.so");
 *     mcc::context run(net);
 *     std::vector<float> x(net.input(0).elements()), y(net.output(0).elements());
 *     run({mcc::tensor(x, {1, 3, 224, 224})}, {mcc::tensor(y, {1, 1000})});
 *     std::vector<mcc::owned> out = run({mcc::tensor(x, {1, 3, 224, 224})});       // or: outputs that are allocated
 *
 * Failures are exceptions of type mcc::error. A model serves any number of threads; a context one run at a time.
 */
#ifndef MCC_HPP
#define MCC_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "mcc_load.h"

namespace mcc {

/* code: MCC_E_*; node: index into mcc_api.node, or -1. */
class error : public std::runtime_error {
public:
    explicit error(const mcc_error &e) : std::runtime_error(e.text), code(e.code), node(e.node) {}
    error(int code_, const char *text) : std::runtime_error(text), code(code_), node(-1) {}
    int code, node;
};

/* n values in a row: std::span of C++20. */
template <typename T> class span {
public:
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/* The element type of a C++ type; 16-bit and 8-bit floats have none: give the DLDataType. */
template <typename T> constexpr DLDataType type_of() noexcept
{
    using U = std::remove_cv_t<T>;
    static_assert(std::is_arithmetic_v<U>, "no element type of a network");
    constexpr std::uint8_t bits = static_cast<std::uint8_t>(8 * sizeof(U));
    if constexpr (std::is_same_v<U, bool>)
        return {static_cast<std::uint8_t>(kDLBool), 8, 1};
    else if constexpr (std::is_floating_point_v<U>)
        return {static_cast<std::uint8_t>(kDLFloat), bits, 1};
    else
        return {static_cast<std::uint8_t>(std::is_signed_v<U> ? kDLInt : kDLUInt), bits, 1};
}

constexpr bool same_type(DLDataType a, DLDataType b) noexcept
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

class port;

/* Memory of the caller with its shape: compact, row-major. It must live until the run has ended. */
class tensor {
public:
    /* As the port has it, with room in some dims for more than there is now: a cache that grows. Throws where the memory is smaller than the
     * room. */
    template <typename C, typename T = std::remove_pointer_t<decltype(std::declval<C &>().data())>>
    tensor(C &values, std::vector<std::int64_t> shape, const port &p) : tensor(values.data(), values.size(), type_of<T>(), std::move(shape), p)
    {
    }
    inline tensor(const void *data, std::size_t elements, DLDataType type, std::vector<std::int64_t> shape, const port &p);
    /* Throws where the shape has another number of elements than there are. */
    template <typename C, typename T = std::remove_pointer_t<decltype(std::declval<C &>().data())>>
    tensor(C &values, std::initializer_list<std::int64_t> shape) : tensor(values.data(), values.size(), type_of<T>(), shape)
    {
    }
    template <typename C, typename T = std::remove_pointer_t<decltype(std::declval<C &>().data())>>
    tensor(C &values, std::vector<std::int64_t> shape) : tensor(values.data(), values.size(), type_of<T>(), std::move(shape))
    {
    }
    tensor(const void *data, std::size_t elements, DLDataType type, std::vector<std::int64_t> shape) : shape_(std::move(shape))
    {
        if (product(shape_) != elements)
            throw error(MCC_E_SHAPE, "a tensor's shape has another number of elements than its memory");
        fill(data, type);
    }
    span<const std::int64_t> shape() const noexcept { return {shape_.data(), shape_.size()}; }
    DLTensor raw() const noexcept /* valid as long as this tensor */
    {
        DLTensor t = raw_;
        t.shape = const_cast<std::int64_t *>(shape_.data());
        t.strides = strides_.empty() ? nullptr : const_cast<std::int64_t *>(strides_.data());
        return t;
    }

private:
    static std::uint64_t product(const std::vector<std::int64_t> &shape)
    {
        std::uint64_t n = 1;
        for (std::int64_t extent : shape)
            if (extent < 0 || (extent && n > UINT64_MAX / static_cast<std::uint64_t>(extent)))
                throw error(MCC_E_SHAPE, "an extent of a tensor is negative or too large");
            else
                n *= static_cast<std::uint64_t>(extent);
        return n;
    }
    void fill(const void *data, DLDataType type)
    {
        raw_.data = const_cast<void *>(data); /* inputs are only read */
        raw_.device = {kDLCPU, 0};
        raw_.ndim = static_cast<std::int32_t>(shape_.size());
        raw_.dtype = type;
    }
    DLTensor raw_ = {};
    std::vector<std::int64_t> shape_, strides_;
};

/* An output that the run has allocated; it must not outlive the model. */
class owned {
public:
    explicit owned(DLManagedTensorVersioned *p) noexcept : p_(p) {}
    const DLTensor &raw() const noexcept { return p_->dl_tensor; }
    span<const std::int64_t> shape() const noexcept { return {raw().shape, static_cast<std::size_t>(raw().ndim)}; }
    std::size_t elements() const noexcept
    {
        std::size_t n = 1;
        for (std::int64_t extent : shape())
            n *= static_cast<std::size_t>(extent);
        return n;
    }
    /* Throws where the elements are of another type. */
    template <typename T> span<T> values() const
    {
        if (!same_type(raw().dtype, type_of<T>()))
            throw error(MCC_E_DTYPE, "the output has elements of another type");
        return {reinterpret_cast<T *>(static_cast<char *>(raw().data) + raw().byte_offset), elements()};
    }
    /* For whom takes DLPack: who gets it calls its deleter. */
    DLManagedTensorVersioned *release() noexcept { return p_.release(); }

private:
    struct give_back {
        void operator()(DLManagedTensorVersioned *p) const noexcept { p->deleter(p); }
    };
    std::unique_ptr<DLManagedTensorVersioned, give_back> p_;
};

/* An input or output of a model, as long as that lives. */
class port {
public:
    explicit port(const mcc_port &p) noexcept : p_(&p) {}
    std::string_view name() const noexcept { return p_->name; }
    DLDataType type() const noexcept { return p_->dtype; }
    std::uint64_t flags() const noexcept { return p_->flags; }
    bool has_rank() const noexcept { return p_->ndim >= 0; }
    std::size_t rank() const noexcept { return has_rank() ? static_cast<std::size_t>(p_->ndim) : 0; }
    /* -1: a symbol's, -2: an expression's; see raw(). */
    std::int64_t extent(std::size_t i) const { return p_->dims[check(i)].extent; }
    /* How many there is to be memory for, whatever the extent is: mcc_dim.room; 0: as many as there are. */
    std::int64_t room(std::size_t i) const { return p_->dims[check(i)].room; }
    /* Of an output: the input whose memory it may be, or -1. */
    std::int64_t alias() const noexcept { return static_cast<std::int64_t>(p_->alias) - 1; }
    /* Of a fixed shape; throws where it is not. */
    std::size_t elements() const
    {
        std::size_t n = 1;
        if (!has_rank())
            throw error(MCC_E_SHAPE, "the port has no fixed shape");
        for (std::size_t i = 0; i < rank(); i++) {
            if (extent(i) < 0)
                throw error(MCC_E_SHAPE, "the port has no fixed shape");
            n *= static_cast<std::size_t>(extent(i));
        }
        return n;
    }
    const mcc_port &raw() const noexcept { return *p_; }

private:
    std::size_t check(std::size_t i) const
    {
        if (i >= rank())
            throw error(MCC_E_ARG, "the port has no such dimension");
        return i;
    }
    const mcc_port *p_;
};

inline tensor::tensor(const void *data, std::size_t elements, DLDataType type, std::vector<std::int64_t> shape, const port &p)
    : shape_(std::move(shape))
{
    std::vector<std::int64_t> whole = shape_;
    for (std::size_t i = 0; i < whole.size() && i < p.rank(); i++)
        if (p.room(i) > 0 && whole[i] > p.room(i))
            throw error(MCC_E_SHAPE, "a tensor is longer than the room of its port");
        else if (p.room(i) > 0)
            whole[i] = p.room(i);
    if (product(whole) > elements)
        throw error(MCC_E_SHAPE, "a tensor's memory is smaller than the room of its port");
    strides_.resize(whole.size());
    std::int64_t n = 1;
    for (std::size_t i = whole.size(); i-- > 0; n *= whole[i])
        strides_[i] = n;
    fill(data, type);
}

class model {
public:
    explicit model(const char *path, const mcc_host *host = nullptr)
    {
        mcc_lib *lib = nullptr;
        mcc_error e = {};
        if (mcc_load(path, host, &lib, &e) != MCC_OK)
            throw error(e);
        lib_.reset(lib);
    }
    explicit model(const std::string &path, const mcc_host *host = nullptr) : model(path.c_str(), host) {}
    const mcc_api &api() const noexcept { return *lib_->api; }
    mcc_model *raw() const noexcept { return lib_->model; }
    std::string_view name() const noexcept { return api().name; }
    std::size_t inputs() const noexcept { return api().n_in; }
    std::size_t outputs() const noexcept { return api().n_out; }
    port input(std::size_t i) const { return port(at(api().in, api().n_in, i)); }
    port output(std::size_t i) const { return port(at(api().out, api().n_out, i)); }
    /* What contexts keep from run to run. */
    std::size_t states() const noexcept { return mcc_state_of(&api()) ? mcc_state_of(&api())->n : 0; }
    port state(std::size_t i) const { return port(at(states() ? mcc_state_of(&api())->port : nullptr, states(), i)); }

private:
    struct unload {
        void operator()(mcc_lib *lib) const noexcept { mcc_unload(lib); }
    };
    static const mcc_port &at(const mcc_port *ports, std::size_t n, std::size_t i)
    {
        if (i >= n)
            throw error(MCC_E_ARG, "the model has no such port");
        return ports[i];
    }
    std::unique_ptr<mcc_lib, unload> lib_;
};

/* The memory of a run; the model must outlive it. */
class context {
public:
    explicit context(const model &m) : api_(&m.api())
    {
        mcc_error e = {};
        mcc_ctx *ctx = nullptr;
        if (api_->ctx_new(m.raw(), nullptr, 0, &ctx, &e) != MCC_OK)
            throw error(e);
        ctx_ = {ctx, api_->ctx_free};
    }
    /* Into the caller's memory. */
    void operator()(const std::vector<tensor> &in, const std::vector<tensor> &out)
    {
        list ins(in), outs(out);
        mcc_error e = {};
        check(in.size(), api_->n_in);
        check(out.size(), api_->n_out);
        if (api_->run(ctx_.get(), ins.in(), outs.out(), &e) != MCC_OK)
            throw error(e);
    }
    /* Outputs are allocated: also where the data decides their shape. */
    std::vector<owned> operator()(const std::vector<tensor> &in)
    {
        list ins(in);
        mcc_error e = {};
        check(in.size(), api_->n_in);
        std::vector<DLManagedTensorVersioned *> raw(api_->n_out);
        std::vector<owned> out;
        out.reserve(raw.size());
        if (api_->run_dlpack(ctx_.get(), ins.in(), raw.data(), &e) != MCC_OK)
            throw error(e);
        for (DLManagedTensorVersioned *p : raw)
            out.emplace_back(p);
        return out;
    }
    /* Ends the run in progress, from any thread: it throws MCC_E_CANCELLED. */
    void cancel() noexcept { api_->cancel(ctx_.get()); }
    /* The state as it is in a new context. */
    void reset()
    {
        mcc_error e = {};
        const mcc_state *s = mcc_state_of(api_);
        if (s && s->reset(ctx_.get(), &e) != MCC_OK)
            throw error(e);
    }
    /* State i in the context's memory, to be read or written until the next call. */
    DLTensor state(std::size_t i)
    {
        mcc_error e = {};
        DLTensor t = {};
        const mcc_state *s = mcc_state_of(api_);
        if (!s || i >= s->n)
            throw error(MCC_E_ARG, "the model has no such state");
        if (s->tensor(ctx_.get(), static_cast<std::uint32_t>(i), &t, &e) != MCC_OK)
            throw error(e);
        return t;
    }

private:
    /* DLTensors of tensors, and the pointers that the table's functions take. */
    class list {
    public:
        explicit list(const std::vector<tensor> &tensors)
        {
            raw_.reserve(tensors.size());
            for (const tensor &t : tensors)
                raw_.push_back(t.raw());
            for (DLTensor &t : raw_)
                pointers_.push_back(&t);
            constant_.assign(pointers_.begin(), pointers_.end());
        }
        const DLTensor *const *in() const noexcept { return constant_.data(); }
        DLTensor *const *out() const noexcept { return pointers_.data(); }

    private:
        std::vector<DLTensor> raw_;
        std::vector<DLTensor *> pointers_;
        std::vector<const DLTensor *> constant_;
    };
    static void check(std::size_t got, std::size_t want)
    {
        if (got != want)
            throw error(MCC_E_ARG, "another number of tensors than the model has ports");
    }
    const mcc_api *api_;
    std::unique_ptr<mcc_ctx, void (*)(mcc_ctx *)> ctx_{nullptr, nullptr};
};

} // namespace mcc

#endif
