/* The compiled kernels. `kernels.py` says what a kernel promises, and CONTRIBUTING.md how to add one.
 *
 * A kernel does the floating-point operations of its twin in numpy, in the same order, so that both return the
 * same bits. Products are never contracted with sums: the extension is compiled with -ffp-contract=off. Only
 * operations that IEEE 754 rounds exactly are used: +, -, *, / and the square root.
 */

#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define VERSION 1 /* that of kernels.py; a change of any kernel raises both */

#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "expressions are not evaluated in their own type"
#endif
#ifdef __FAST_MATH__
#error "-ffast-math changes results"
#endif

/* Numbers of neighbouring matrices that are processed at once. Compilers without vector types take one. */
#ifdef __GNUC__
#define LANES 8
typedef double lanes __attribute__((vector_size(8 * LANES)));
#define INLINE static inline __attribute__((always_inline))
#define ALIGN (8 * LANES)
#else
#define LANES 1
typedef double lanes;
#define INLINE static inline
#define ALIGN 8
#endif

/* One machine code for each generation of processors, chosen when the extension is loaded (glibc has ifunc). */
#if defined(__GNUC__) && defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define ON_EVERY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef ON_EVERY_PROCESSOR
#define ON_EVERY_PROCESSOR
#endif

/* -- Matrices that are passed from Python ------------------------------------------------------------------ */

typedef struct {
    Py_buffer view;
    char *data;
    ptrdiff_t rows, columns, down, across; /* the distances of rows and of columns, in bytes */
} Matrix;

/* Take a matrix of a shape whose type is one of `types` (d: double, f: float), or raise. -1 is any length. */
static int
take(PyObject *from, Matrix *into, const char *types, ptrdiff_t rows, ptrdiff_t columns, int flags)
{
    Py_buffer *view = &into->view;
    if (PyObject_GetBuffer(from, view, PyBUF_STRIDES | PyBUF_FORMAT | flags) < 0) {
        return -1;
    }
    if (view->ndim != 2 || view->format == NULL || strlen(view->format) != 1 ||
        strchr(types, view->format[0]) == NULL || (rows >= 0 && view->shape[0] != rows) ||
        (columns >= 0 && view->shape[1] != columns)) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "not a matrix of the type and shape that is needed");
        return -1;
    }
    into->data = view->buf;
    into->rows = view->shape[0];
    into->columns = view->shape[1];
    into->down = view->strides[0];
    into->across = view->strides[1];
    return 0;
}

/* Read `count` numbers of a row, at most LANES, from column `start` on. */
INLINE void
gather(lanes *into, const Matrix *from, ptrdiff_t row, ptrdiff_t start, ptrdiff_t count)
{
    const char *first = from->data + row * from->down + start * from->across;
    if (count == LANES && from->across == sizeof(double)) {
        memcpy(into, first, LANES * sizeof(double));
        return;
    }
    for (ptrdiff_t l = 0; l < count; l++) {
        memcpy((double *)into + l, first + l * from->across, sizeof(double));
    }
}

/* Write `count` numbers of a row, at most LANES, from column `start` on. */
INLINE void
scatter(const Matrix *into, ptrdiff_t row, ptrdiff_t start, const lanes *from, ptrdiff_t count)
{
    char *first = into->data + row * into->down + start * into->across;
    if (count == LANES && into->across == sizeof(double)) {
        memcpy(first, from, LANES * sizeof(double));
        return;
    }
    for (ptrdiff_t l = 0; l < count; l++) {
        memcpy(first + l * into->across, (const double *)from + l, sizeof(double));
    }
}

/* -- Rows with missing values: `methods/ppca/posterior.py` --------------------------------------------------- */

#define OBSERVE(NAME, TYPE)                                                                                   \
    ON_EVERY_PROCESSOR static void NAME(const TYPE *restrict values, const double *restrict centre,           \
                                        double *restrict residual, double *restrict mask, ptrdiff_t columns)  \
    {                                                                                                         \
        for (ptrdiff_t j = 0; j < columns; j++) {                                                             \
            const double value = values[j], moved = value - centre[j];                                        \
            residual[j] = value == value ? moved : 0.0;                                                       \
            mask[j] = value == value ? 1.0 : 0.0;                                                             \
        }                                                                                                     \
    }

OBSERVE(observe_doubles, double)
OBSERVE(observe_floats, float)

static PyObject *
observe(PyObject *module, PyObject *arguments)
{
    PyObject *from[4], *found = NULL;
    int taken = 0;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOO", &from[0], &from[1], &from[2], &from[3])) {
        return NULL;
    }
    Matrix matrices[4];
    const char *types[4] = {"fd", "d", "d", "d"};
    ptrdiff_t rows = -1, columns = -1;
    for (; taken < 4; taken++) {
        if (take(from[taken], &matrices[taken], types[taken], taken == 1 ? 1 : rows, columns,
                 taken < 2 ? 0 : PyBUF_WRITABLE) < 0) {
            goto release;
        }
        if (matrices[taken].columns > 1 && matrices[taken].across != matrices[taken].view.itemsize) {
            PyErr_SetString(PyExc_ValueError, "rows are not contiguous");
            taken++;
            goto release;
        }
        rows = matrices[0].rows;
        columns = matrices[0].columns;
    }
    Py_BEGIN_ALLOW_THREADS;
    const int doubles = matrices[0].view.itemsize == sizeof(double);
    const double *centre = (const double *)matrices[1].data;
    for (ptrdiff_t i = 0; i < rows; i++) {
        const char *values = matrices[0].data + i * matrices[0].down;
        double *residual = (double *)(matrices[2].data + i * matrices[2].down);
        double *mask = (double *)(matrices[3].data + i * matrices[3].down);
        if (doubles) {
            observe_doubles((const double *)values, centre, residual, mask, columns);
        }
        else {
            observe_floats((const float *)values, centre, residual, mask, columns);
        }
    }
    Py_END_ALLOW_THREADS;
    found = Py_None;
    Py_INCREF(found);
release:
    while (taken > 0) {
        PyBuffer_Release(&matrices[--taken].view);
    }
    return found;
}

/* -- Inverses of many small matrices: `methods/ppca/small_matrices.py` -------------------------------------- */

/* Where row i of a packed lower triangle begins. */
INLINE ptrdiff_t
row_of(ptrdiff_t i)
{
    return i * (i + 1) / 2;
}

INLINE lanes
root(lanes of)
{
    lanes found;
    double numbers[LANES];
    memcpy(numbers, &of, sizeof numbers);
    for (int l = 0; l < LANES; l++) {
        numbers[l] = sqrt(numbers[l]);
    }
    memcpy(&found, numbers, sizeof found);
    return found;
}

INLINE lanes
zero(void)
{
    lanes none;
    memset(&none, 0, sizeof none);
    return none;
}

/* into[r * step] = sum over m in [from, to) of a[m] b[r * step + m], for r < 4: four sums share a[m]. */
INLINE void
four_products(const lanes *a, const lanes *b, ptrdiff_t step, ptrdiff_t from, ptrdiff_t to, lanes *sums)
{
    lanes s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    const lanes *b0 = b, *b1 = b + step, *b2 = b + 2 * step, *b3 = b + 3 * step;
    for (ptrdiff_t m = from; m < to; m++) {
        const lanes shared = a[m];
        s0 += shared * b0[m];
        s1 += shared * b1[m];
        s2 += shared * b2[m];
        s3 += shared * b3[m];
    }
    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
}

INLINE lanes
product(const lanes *a, const lanes *b, ptrdiff_t from, ptrdiff_t to)
{
    lanes sum = zero();
    for (ptrdiff_t m = from; m < to; m++) {
        sum += a[m] * b[m];
    }
    return sum;
}

/* Invert the matrices of LANES columns. `lower` and `inverse` are squares of k + 1 rows: L, and X' = L^-T, of
 * which row c is column c of X. The right-hand side is row k of L; the solution replaces it at the end. */
INLINE void
invert_lanes(ptrdiff_t k, lanes *lower, lanes *inverse, lanes *diagonal, lanes *quadratic)
{
    const ptrdiff_t step = k + 1;
    for (ptrdiff_t j = 0; j < k; j++) {
        lanes *own = lower + j * step;
        lanes pivot = own[j] + 1.0;
        ptrdiff_t i = j + 1;
        pivot -= product(own, own, 0, j);
        pivot = 1.0 / root(pivot);
        diagonal[j] = inverse[j * step + j] = pivot;
        for (; i + 4 <= k + 1; i += 4) {
            lanes sums[4] = {zero(), zero(), zero(), zero()};
            four_products(own, lower + i * step, step, 0, j, sums);
            for (int r = 0; r < 4; r++) {
                lanes *entry = lower + (i + r) * step + j;
                *entry = (*entry - sums[r]) * pivot;
            }
        }
        for (; i <= k; i++) {
            lanes *entry = lower + i * step + j;
            *entry = (*entry - product(own, lower + i * step, 0, j)) * pivot;
        }
    }
    for (ptrdiff_t j = 1; j <= k; j++) {
        const lanes *own = lower + j * step;
        const lanes sign = j < k ? -diagonal[j] : zero() + 1.0;
        ptrdiff_t c = 0;
        for (; c + 4 <= j; c += 4) {
            lanes sums[4], *columns = inverse + c * step;
            for (int r = 0; r < 4; r++) {
                sums[r] = product(own, columns + r * step, c + r, c + 3);
            }
            four_products(own, columns, step, c + 3, j, sums);
            for (int r = 0; r < 4; r++) {
                columns[r * step + j] = sums[r] * sign;
            }
        }
        for (; c < j; c++) {
            inverse[c * step + j] = product(own, inverse + c * step, c, j) * sign;
        }
    }
    *quadratic = product(lower + k * step, lower + k * step, 0, k);
}

/* B = X'X of the first `rows` rows of X, packed, into the rows of `lower`. */
INLINE void
multiply_lanes(ptrdiff_t k, ptrdiff_t rows, lanes *lower, const lanes *inverse)
{
    const ptrdiff_t step = k + 1;
    for (ptrdiff_t i = 0; i < k; i++) {
        const lanes *own = inverse + i * step;
        ptrdiff_t c = 0;
        for (; c + 4 <= i + 1; c += 4) {
            lanes sums[4] = {zero(), zero(), zero(), zero()};
            four_products(own, inverse + c * step, step, i, rows, sums);
            for (int r = 0; r < 4; r++) {
                lower[i * step + c + r] = sums[r];
            }
        }
        for (; c <= i; c++) {
            lower[i * step + c] = product(own, inverse + c * step, i, rows);
        }
    }
}

ON_EVERY_PROCESSOR static void
invert_all(const Matrix *packed, const Matrix *vectors, const Matrix *solved, const Matrix *diagonal,
           const Matrix *quadratic, ptrdiff_t rows, lanes *room)
{
    const ptrdiff_t k = vectors->rows, step = k + 1, number = packed->columns;
    lanes *lower = room, *inverse = lower + step * step, *pivots = inverse + step * step;
    for (ptrdiff_t start = 0; start < number; start += LANES) {
        const ptrdiff_t count = number - start < LANES ? number - start : LANES;
        lanes squares;
        if (count < LANES) { /* the matrices of unused lanes are zero */
            memset(lower, 0, (size_t)(step * step) * sizeof(lanes));
        }
        for (ptrdiff_t i = 0; i < k; i++) {
            for (ptrdiff_t j = 0; j <= i; j++) {
                gather(lower + i * step + j, packed, row_of(i) + j, start, count);
            }
            gather(lower + k * step + i, vectors, i, start, count);
        }
        invert_lanes(k, lower, inverse, pivots, &squares);
        multiply_lanes(k, rows, lower, inverse);
        for (ptrdiff_t i = 0; i < k; i++) {
            for (ptrdiff_t j = 0; j <= i; j++) {
                scatter(packed, row_of(i) + j, start, lower + i * step + j, count);
            }
            scatter(solved, i, start, inverse + i * step + k, count);
            scatter(diagonal, i, start, pivots + i, count);
        }
        scatter(quadratic, 0, start, &squares, count);
    }
}

static PyObject *
invert(PyObject *module, PyObject *arguments)
{
    PyObject *from[5], *found = NULL;
    int with_outer, taken = 0;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOOOp", &from[0], &from[1], &from[2], &from[3], &from[4], &with_outer)) {
        return NULL;
    }
    Matrix matrices[5];
    ptrdiff_t order = PyObject_Size(from[1]), number = -1;
    if (order < 0) {
        return NULL;
    }
    const ptrdiff_t lengths[5] = {row_of(order), order, order, order, 1};
    for (; taken < 5; taken++) {
        if (take(from[taken], &matrices[taken], "d", lengths[taken], number,
                 taken == 1 ? 0 : PyBUF_WRITABLE) < 0) {
            goto release;
        }
        number = matrices[taken].columns;
    }
    const size_t side = (size_t)order + 1, bytes = (2 * side * side + side) * sizeof(lanes);
    char *allocated = PyMem_Malloc(bytes + ALIGN);
    if (allocated == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    lanes *room = (lanes *)(allocated + (ALIGN - (size_t)allocated % ALIGN));
    Py_BEGIN_ALLOW_THREADS;
    invert_all(&matrices[0], &matrices[1], &matrices[2], &matrices[3], &matrices[4],
               order + (with_outer ? 1 : 0), room);
    Py_END_ALLOW_THREADS;
    PyMem_Free(allocated);
    found = Py_None;
    Py_INCREF(found);
release:
    while (taken > 0) {
        PyBuffer_Release(&matrices[--taken].view);
    }
    return found;
}

/* -- The module -------------------------------------------------------------------------------------------- */

static PyMethodDef METHODS[] = {
    {"observe", observe, METH_VARARGS, "Centre observed values; the GIL is released."},
    {"invert", invert, METH_VARARGS, "Invert many small matrices; the GIL is released."},
    {NULL, NULL, 0, NULL},
};

static int
fill(PyObject *module)
{
    return PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "streamdr.core._kernels", "The compiled kernels.", 0, METHODS, SLOTS, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__kernels(void)
{
    return PyModuleDef_Init(&MODULE);
}
