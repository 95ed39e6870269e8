/* Find the kept call whose operands have the types, shapes and places of given ones, and run its nest on their values.
 *
 * What a call is kept for is compared with the memory of the operands each time, because arrays may have been changed
 * in place. Operands are read by the buffer protocol, and held until the nest has run. A nest reads the levels that were
 * packed when the call was kept, so that no place is read from memory which other threads may change meanwhile.
 *
 * `kept_call.py` has the same structures. Functions of Python's stable interface come as addresses, so that its headers
 * are not needed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct object PyObject;
typedef struct {
    void *start;
    PyObject *owner;
    intptr_t bytes, itemsize;
    int readonly, ndim;
    char *format;
    intptr_t *shape, *strides, *suboffsets;
    void *internal;
} Buffer;
enum { WRITABLE = 1, STRIDED_WITH_FORMAT = 0x1c, EQUAL = 2 };

/* In the order of `FUNCTIONS` in kept_call.py. */
static struct {
    PyObject *(*type)(PyObject *);
    PyObject *(*attribute)(PyObject *, PyObject *);
    int (*compare)(PyObject *, PyObject *, int);
    int (*buffer)(PyObject *, Buffer *, int);
    void (*release)(Buffer *);
    int (*contiguous)(void *, const Buffer *, intptr_t, char);
    void (*clear)(void);
    PyObject *(*no_memory)(void);
    void *(*unlock)(void);
    void (*lock)(void *);
    intptr_t (*length)(PyObject *);
    PyObject *(*item)(PyObject *, intptr_t);
    PyObject *(*integers)(const char *, ...);
    PyObject *(*call)(PyObject *, PyObject *);
    PyObject *(*call_with)(PyObject *, ...);
    void (*keep)(PyObject *);
    void (*drop)(PyObject *);
} python;

void use_python(const int64_t *functions) { memcpy(&python, functions, sizeof python); }

/* Elements of an array. `type` is the size of an element, negative for floating-point numbers. */
typedef struct {
    const void *elements;
    int64_t count, type;
} Elements;

/* What a call is kept for, of one operand; and where its values go. */
typedef struct {
    PyObject *type, *shape;
    /* Of arrays: their shape. Those of rows are compared as tuples. */
    const int64_t *extents;
    int64_t ndim;
    /* Of rows. `rows` is 0 for arrays. */
    int64_t rows;
    Elements positions, indices;
    /* Of arrays with zeros: which elements are none. */
    const uint8_t *nonzero;
    int64_t count, value_type, ones;
    /* The first operand that is the same object. */
    int64_t same;
    /* The values as float64: a variable (-1 for none) of `size` elements, those at `places`, counted from 1, or zero
     * where these are 0; without `places` all in order. */
    int64_t variable, size;
    const int64_t *places;
    /* Whether places are 0. */
    int64_t holes;
} Operand;

/* A level of a sparse result by the variables that nests write. `counts` is -1 for an outermost level. */
typedef struct {
    int64_t counts, coordinates, coordinate_bytes;
} Level;

typedef struct {
    int64_t n_operands;
    const Operand *operands;
    /* NULL for calls that are planned each time. */
    void (*nest)(const int64_t *);
    int64_t n_arguments;
    const int64_t *arguments;
    /* Pairs: the number of an argument, and of the variable that it is. */
    int64_t n_links;
    const int64_t *links;
    /* Of each variable: where it begins in memory of the call (-1 for others), and its first bytes that are cleared. */
    int64_t n_variables;
    const int64_t *places, *cleared;
    int64_t memory;
    /* A dense result: its variable. */
    int64_t out;
    /* A sparse result: its compressed levels, entries of the level above them, the variables of used entries and of
     * values, and the columns if its rows are returned as columns, else 0. */
    int64_t n_levels, first, parents, used, values, columns;
    /* Entries of arrays of the result to which the nest itself writes coordinates and values; 0 if they are copied. */
    int64_t direct;
    const Level *levels;
    /* make(*entries of levels) returns the arrays, finish(arrays, operands) the result. */
    PyObject *make, *finish;
} Call;

typedef struct {
    PyObject *unknown, *planned, *names[4];
    int64_t n_calls;
    const Call *const *calls;
} Table;

enum { MOST_OPERANDS = 8 };

typedef struct {
    Buffer buffer;
    void *copy;
    int held;
} Held;

typedef struct {
    PyObject *operand, *type, *shape;
    int loaded, failed;
    Held values, positions, indices;
} Given;

static int64_t type_of(const Buffer *b) {
    char kind = b->format ? b->format[0] : 0;
    if (!kind || b->format[1]) return 0;
    if (kind == 'd' || kind == 'f') return -b->itemsize;
    return kind == 'i' || kind == 'l' || kind == 'q' ? b->itemsize : 0;
}

static int has(const Held *held, int64_t count, int64_t type) {
    return type_of(&held->buffer) == type && held->buffer.bytes == count * held->buffer.itemsize;
}

static int hold(Held *held, PyObject *array) {
    held->held = array && python.buffer(array, &held->buffer, STRIDED_WITH_FORMAT) == 0;
    return held->held;
}

static int hold_attribute(Held *held, PyObject *operand, PyObject *name) {
    PyObject *array = python.attribute(operand, name);
    int done = hold(held, array);
    if (array) python.drop(array);
    return done;
}

static void let_go(Held *held) {
    if (held->held) python.release(&held->buffer);
    free(held->copy);
}

/* Read an operand: its shape if it is stored by rows, and its buffers. */
static int load(Given *given, int rows, PyObject *const *names) {
    if (given->loaded) return !given->failed;
    given->loaded = 1;
    if (rows) {
        given->shape = python.attribute(given->operand, names[0]);
        given->failed = !given->shape || !hold_attribute(&given->positions, given->operand, names[1]) ||
                        !hold_attribute(&given->indices, given->operand, names[2]) ||
                        !hold_attribute(&given->values, given->operand, names[3]);
    } else {
        given->failed = !hold(&given->values, given->operand);
    }
    if (given->failed) python.clear();
    return !given->failed;
}

/* Return elements in order: those of the buffer, or a copy if they have other strides; NULL without memory. */
static const void *in_order(Held *held) {
    const Buffer *b = &held->buffer;
    int64_t stride = b->itemsize;
    int plain = (uintptr_t)b->start % (uintptr_t)b->itemsize == 0;
    for (int axis = b->ndim - 1; axis >= 0; axis--) {
        plain = plain && (b->shape[axis] == 1 || b->strides[axis] == stride);
        stride *= b->shape[axis];
    }
    if (plain || !b->bytes) return b->start;
    if (!held->copy) {
        held->copy = malloc((size_t)b->bytes);
        if (held->copy && python.contiguous(held->copy, b, b->bytes, 'C')) {
            python.clear();
            free(held->copy);
            held->copy = NULL;
        }
    }
    return held->copy;
}

static int equal(Held *held, const Elements *kept) {
    if (!has(held, kept->count, kept->type)) return 0;
    const void *elements = in_order(held);
    return elements && memcmp(elements, kept->elements, (size_t)held->buffer.bytes) == 0;
}

/* Whether zeros are where they were, and whether other elements are all 1 if and only if they were. */
#define SAME_KIND(name, number)                                                                                        \
    static int name(const number *x, const Operand *kept) {                                                            \
        int64_t n = kept->count, wrong = 0, k = 0;                                                                     \
        if (kept->nonzero)                                                                                             \
            for (int64_t i = 0; i < n; i++) wrong += (x[i] != 0) != kept->nonzero[i];                                  \
        else if (!kept->rows)                                                                                          \
            for (int64_t i = 0; i < n; i++) wrong += x[i] == 0;                                                        \
        while (k < n && (x[k] == 1 || (kept->nonzero && x[k] == 0))) k++;                                              \
        return !wrong && (k == n) == kept->ones;                                                                       \
    }
SAME_KIND(same_f64, double)
SAME_KIND(same_f32, float)
SAME_KIND(same_i64, int64_t)
SAME_KIND(same_i32, int32_t)

static int matches(const Operand *kept, Given *given, PyObject *const *names) {
    if (given->type != kept->type || !load(given, (int)kept->rows, names)) return 0;
    if (!has(&given->values, kept->count, kept->value_type)) return 0;
    if (kept->rows) {
        int same = python.compare(given->shape, kept->shape, EQUAL);
        if (same < 0) python.clear();
        if (same != 1 || !equal(&given->positions, &kept->positions) || !equal(&given->indices, &kept->indices))
            return 0;
    } else {
        if (given->values.buffer.ndim != kept->ndim) return 0;
        for (int64_t axis = 0; axis < kept->ndim; axis++)
            if (given->values.buffer.shape[axis] != kept->extents[axis]) return 0;
    }
    const void *values = in_order(&given->values);
    if (!values) return 0;
    switch (kept->value_type) {
        case -8: return same_f64(values, kept);
        case -4: return same_f32(values, kept);
        case 8: return same_i64(values, kept);
        default: return same_i32(values, kept);
    }
}

static int found(const Call *call, Given *given, int64_t count, PyObject *const *names) {
    if (call->n_operands != count) return 0;
    for (int64_t t = 0; t < count; t++) {
        int64_t same = 0;
        while (given[same].operand != given[t].operand) same++;
        if (same != call->operands[t].same || !matches(&call->operands[t], &given[t], names)) return 0;
    }
    return 1;
}

#define PACK(number)                                                                                                   \
    do {                                                                                                               \
        const number *x = values;                                                                                      \
        const int64_t *p = kept->places;                                                                               \
        if (!p)                                                                                                        \
            for (int64_t i = 0; i < kept->size; i++) target[i] = (double)x[i];                                         \
        else if (kept->holes)                                                                                          \
            for (int64_t i = 0; i < kept->size; i++) target[i] = p[i] ? (double)x[p[i] - 1] : 0;                       \
        else                                                                                                           \
            for (int64_t i = 0; i < kept->size; i++) target[i] = (double)x[p[i] - 1];                                  \
    } while (0)

static void pack(const Operand *kept, const void *values, double *restrict target) {
    switch (kept->value_type) {
        case -8: PACK(double); break;
        case -4: PACK(float); break;
        case 8: PACK(int64_t); break;
        default: PACK(int32_t);
    }
}

static int64_t integer(const void *array, int64_t bytes, int64_t n) {
    return bytes == 4 ? ((const int32_t *)array)[n] : ((const int64_t *)array)[n];
}

static void set_integer(const Buffer *b, int64_t n, int64_t value) {
    if (b->itemsize == 4) ((int32_t *)b->start)[n] = (int32_t)value;
    else ((int64_t *)b->start)[n] = value;
}

static void set_number(const Buffer *b, int64_t n, double value) {
    if (b->itemsize == 4) ((float *)b->start)[n] = (float)value;
    else ((double *)b->start)[n] = value;
}

/* Write integers, or numbers, to an array from its first element on. Those of the type of the array are copied. */
static void set_integers(const Buffer *b, const void *array, int64_t bytes, int64_t count) {
    if (b->itemsize == bytes) memcpy(b->start, array, (size_t)(count * bytes));
    else
        for (int64_t e = 0; e < count; e++) set_integer(b, e, integer(array, bytes, e));
}

static void set_numbers(const Buffer *b, const double *array, int64_t count) {
    if (b->itemsize == 8) memcpy(b->start, array, (size_t)count * sizeof *array);
    else
        for (int64_t e = 0; e < count; e++) set_number(b, e, array[e]);
}

/* Write rows as columns. They are read in order, so that the rows of every column are in order. */
static int write_columns(const Call *call, void *const *variables, const Buffer *arrays, int64_t entries) {
    const Level *level = call->levels;
    const int64_t *counts = variables[level->counts];
    const void *coordinates = variables[level->coordinates];
    const double *values = variables[call->values];
    int64_t *next = calloc((size_t)call->columns + 1, sizeof *next);
    if (!next) return -1;
    for (int64_t e = 0; e < entries; e++) next[integer(coordinates, level->coordinate_bytes, e) + 1]++;
    for (int64_t k = 0; k <= call->columns; k++) {
        next[k] += k ? next[k - 1] : 0;
        set_integer(&arrays[0], k, next[k]);
    }
    for (int64_t row = 0, e = 0; row < call->parents; row++)
        for (int64_t end = e + counts[row]; e < end; e++) {
            int64_t place = next[integer(coordinates, level->coordinate_bytes, e)]++;
            set_integer(&arrays[1], place, row);
            set_number(&arrays[2], place, values[e]);
        }
    free(next);
    return 0;
}

static void write_levels(const Call *call, void *const *variables, const Buffer *arrays, const int64_t *used) {
    int64_t parents = call->parents, entries = 0;
    for (int64_t n = 0; n < call->n_levels; n++, parents = entries) {
        const Level *level = &call->levels[n];
        const int64_t *counts = level->counts < 0 ? used : variables[level->counts];
        int64_t position = 0;
        set_integer(&arrays[2 * n], 0, 0);
        for (int64_t p = 0; p < parents; p++) set_integer(&arrays[2 * n], p + 1, position += counts[p]);
        entries = used[call->first + n];
        if (!call->direct)
            set_integers(&arrays[2 * n + 1], variables[level->coordinates], level->coordinate_bytes, entries);
    }
    if (!call->direct) set_numbers(&arrays[2 * call->n_levels], variables[call->values], entries);
}

enum { MOST_LEVELS = 8, MOST_ARRAYS = 2 * MOST_LEVELS + 1 };

/* New arrays of a sparse result, with their buffers. */
typedef struct {
    PyObject *arrays;
    Buffer buffers[MOST_ARRAYS];
    int64_t held;
} Made;

static void close_arrays(Made *made) {
    while (made->held) python.release(&made->buffers[--made->held]);
}

static int open_arrays(const Call *call, const int64_t *entries, Made *made) {
    PyObject *numbers = python.integers("(LLLLLLLL)", entries[0], entries[1], entries[2], entries[3], entries[4],
                                        entries[5], entries[6], entries[7]);
    made->held = 0;
    made->arrays = numbers ? python.call(call->make, numbers) : NULL;
    if (numbers) python.drop(numbers);
    if (!made->arrays) return -1;
    for (int64_t count = 2 * call->n_levels + 1; made->held < count; made->held++) {
        PyObject *array = python.item(made->arrays, made->held);
        if (!array || python.buffer(array, &made->buffers[made->held], WRITABLE)) {
            close_arrays(made);
            python.drop(made->arrays);
            return -1;
        }
    }
    return 0;
}

/* Return the arrays of the sparse result that is in the memory of a call, or in part in the arrays already. */
static PyObject *sparse_result(const Call *call, void *const *variables, Made *made) {
    const int64_t *used = variables[call->used];
    int64_t entries[MOST_LEVELS] = {0};
    for (int64_t n = 0; n < call->n_levels; n++) entries[n] = used[call->first + n];
    if (!call->direct && open_arrays(call, entries, made)) return NULL;
    int failed = 0;
    if (call->columns) failed = write_columns(call, variables, made->buffers, entries[0]);
    else write_levels(call, variables, made->buffers, used);
    close_arrays(made);
    if (!failed) return made->arrays;
    python.drop(made->arrays);
    return python.no_memory();
}

/* Run the nest of a call. `out` is the buffer of a dense result, or NULL. */
static PyObject *run(const Call *call, Given *given, Buffer *out, PyObject *made) {
    int64_t numbers = call->n_arguments + call->n_variables;
    char *memory = malloc((size_t)(call->memory + 8 * numbers + 64));
    if (!memory) return python.no_memory();
    /* Vectors begin at multiples of 64 bytes. */
    char *begin = (char *)(((uintptr_t)memory + 63) / 64 * 64);
    int64_t *arguments = (int64_t *)(begin + call->memory);
    void **variables = (void **)(arguments + call->n_arguments);
    const void *values[MOST_OPERANDS];
    for (int64_t t = 0; t < call->n_operands; t++) values[t] = in_order(&given[call->operands[t].same].values);
    int direct = out && out->itemsize == 8;
    const int64_t room[MOST_LEVELS] = {call->direct};
    Made arrays;
    if (call->direct && open_arrays(call, room, &arrays)) {
        free(memory);
        return NULL;
    }

    void *state = python.unlock();
    for (int64_t n = 0; n < call->n_variables; n++) variables[n] = call->places[n] < 0 ? NULL : begin + call->places[n];
    if (direct) variables[call->out] = out->start;
    if (call->direct) {
        variables[call->levels->coordinates] = arrays.buffers[1].start;
        variables[call->values] = arrays.buffers[2].start;
    }
    for (int64_t n = 0; n < call->n_variables; n++)
        if (call->cleared[n]) memset(variables[n], 0, (size_t)call->cleared[n]);
    for (int64_t t = 0; t < call->n_operands; t++) {
        const Operand *kept = &call->operands[t];
        if (kept->variable < 0) continue;
        /* Nests only read values. */
        if (variables[kept->variable]) pack(kept, values[t], variables[kept->variable]);
        else variables[kept->variable] = (void *)values[t];
    }
    memcpy(arguments, call->arguments, (size_t)call->n_arguments * sizeof *arguments);
    for (int64_t n = 0; n < call->n_links; n++)
        arguments[call->links[2 * n]] = (int64_t)(uintptr_t)variables[call->links[2 * n + 1]];
    call->nest(arguments);
    if (out && !direct) set_numbers(out, variables[call->out], out->bytes / out->itemsize);
    python.lock(state);

    PyObject *result = made;
    if (out) python.keep(made);
    else result = sparse_result(call, variables, &arrays);
    free(memory);
    return result;
}

static PyObject *answer(const Call *call, Given *given, PyObject *operands) {
    PyObject *result;
    if (call->n_levels) {
        result = run(call, given, NULL, NULL);
    } else {
        Buffer out;
        PyObject *made = python.call(call->make, NULL);
        if (!made) return NULL;
        result = NULL;
        if (python.buffer(made, &out, WRITABLE) == 0) {
            result = run(call, given, &out, made);
            python.release(&out);
        }
        python.drop(made);
    }
    if (!result || !call->finish) return result;
    PyObject *finished = python.call_with(call->finish, result, operands, NULL);
    python.drop(result);
    return finished;
}

/* Return the result of a tuple of operands, or what stands for calls that are unknown or planned. */
PyObject *kept_call(const Table *table, PyObject *operands) {
    Given given[MOST_OPERANDS];
    int64_t count = python.length(operands);
    PyObject *result = table->unknown;
    if (count > MOST_OPERANDS) {
        python.keep(result);
        return result;
    }
    memset(given, 0, (size_t)count * sizeof *given);
    for (int64_t t = 0; t < count; t++) {
        given[t].operand = python.item(operands, t);
        given[t].type = python.type(given[t].operand);
    }
    const Call *call = NULL;
    for (int64_t n = 0; n < table->n_calls && !call; n++)
        if (found(table->calls[n], given, count, table->names)) call = table->calls[n];
    if (call && call->nest) {
        result = answer(call, given, operands);
    } else {
        result = call ? table->planned : result;
        python.keep(result);
    }
    for (int64_t t = 0; t < count; t++) {
        let_go(&given[t].values);
        let_go(&given[t].positions);
        let_go(&given[t].indices);
        if (given[t].shape) python.drop(given[t].shape);
        python.drop(given[t].type);
    }
    return result;
}
