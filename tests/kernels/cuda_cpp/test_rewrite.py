"""What the rewriter makes of launches, shared memory and inline PTX; what it refuses, by line."""

from __future__ import annotations

import re

import pytest

from torch_loom.kernels.cuda_cpp import nvcc
from torch_loom.kernels.cuda_cpp.rewrite import RefusedError, rewrite, with_template_words

SHARED = "*reinterpret_cast<{}>(::loom_cuda::dynamic_shared())"


def flat(text: str) -> str:
    return " ".join(text.split())


def fits(size: str) -> str:
    return f'static_assert({size} <= ::loom_cuda::kMostStaticShared, "uses too much shared data");'


@pytest.mark.parametrize(
    ("code", "kernel", "configuration", "arguments"),
    [
        ("f<<<1, 2>>>(a);", "f", "1, 2", "a"),
        (
            "f<<<grid, block, n * sizeof(float), stream>>>();",
            "f",
            "grid, block, n * sizeof(float), stream",
            "",
        ),
        ("f<Pair<int, Pair<A, B>>, 4><<<g, b>>>(x, y);", "f<Pair<int, Pair<A, B>>, 4>", "g, b", "x, y"),
        ("f<(a > b)><<<g, dim3(8, 8)>>>(x[1], g(y, {1}));", "f<(a > b)>", "g, dim3(8, 8)", "x[1], g(y, {1})"),
        (
            "::n::Traits<T>::template f<2> <<<g, Traits<A<B>>::n>>> (x);",
            "::n::Traits<T>::template f<2>",
            "g, Traits<A<B>>::n",
            "x",
        ),
        ("(*pointer)<<<1, 1>>>(NULL);", "(*pointer)", "1, 1", "nullptr"),
        ("if (n) object.kernel<<<1, 1>>>(')');", "object.kernel", "1, 1", "')'"),
        ('f<<<max(1, n >> 2), 32>>>(">>>(");', "f", "max(1, n >> 2), 32", '">>>("'),
    ],
)
def test_launches(code: str, kernel: str, configuration: str, arguments: str) -> None:
    made = flat(rewrite(f"void g() {{ {code} }}"))
    comma = "," if arguments else ""
    call = f"[=](auto... loom_given) {{ {kernel}(loom_given...); }}"
    given = f"::loom_cuda::Configuration({configuration}){comma}{arguments})"
    assert f'::loom_cuda::launch("{kernel}", "code:1", {call}, {given}' in made
    assert "<<<" not in made.replace('">>>("', "")


def test_lambdas_of_the_device_in_arguments() -> None:
    code = "void g() { k<<<1, 32>>>(d, [=] __loom_device__ (float v) { return v + NULL; }, NULL); }"
    made = flat(rewrite(code))
    assert made.endswith("32),d, [=] (float v) { return v + nullptr; }, nullptr); }")
    nested = flat(rewrite("void g() { a<<<1, 1>>>([] { b<<<2, 2>>>(1); }); }"))
    assert nested.count("::loom_cuda::launch(") == 2
    assert "<<<" not in nested


def test_lambdas_of_the_device_in_the_configuration() -> None:
    code = "void g() { k<<<blocks(n, [] __loom_device__ (int i) { return i; }), 32>>>(d); }"
    configuration = "::loom_cuda::Configuration(blocks(n, [] (int i) { return i; }), 32),d)"
    assert flat(rewrite(code)).endswith(f"{configuration}; }}")


def test_what_is_no_launch() -> None:
    code = 'void f() { s << "<<<1, 1>>>(x)" << x; } std::ostream& operator<< <>(std::ostream&, int);'
    assert rewrite(code) == code


def test_lines_stay() -> None:
    code = "\nvoid f() {\n  k<<<\n    1,\n    2\n  >>>(\n    a);\n}\nint last;"
    made = rewrite(code)
    assert made.count("\n") == code.count("\n")
    assert made.splitlines()[-1] == "int last;"


def test_markers_within_a_line_go() -> None:
    code = '# 3 "a.cu"\nextern \n# 3 "a.cu" 3 4\n __loom_shared__ \n# 3 "a.cu"\n float x[];\nint y;\n'
    assert rewrite(f"void f() {{\n{code}}}").splitlines()[-2:] == ["int y;", "}"]


@pytest.mark.parametrize(
    ("declared", "made"),
    [
        (
            "__loom_shared__ float x[4];",
            f"static thread_local float x[4]; ::loom_cuda::note_shared(x); {fits('sizeof(x)')}",
        ),
        (
            "__loom_shared__ union { int a; float b; } x, y[2][3];",
            "static thread_local union { int a; float b; } x, y[2][3]; "
            f"::loom_cuda::note_shared(x); ::loom_cuda::note_shared(y); {fits('sizeof(x) + sizeof(y)')}",
        ),
        (
            "__loom_shared__ typename cub::Scan<T, (2 < 3)>::Storage x;",
            "static thread_local typename cub::Scan<T, (2 < 3)>::Storage x; ::loom_cuda::note_shared(x); "
            + fits("sizeof(x)"),
        ),
        ("extern __loom_shared__ float x[];", f"auto& x = {SHARED.format('float (*)[1048576]')};"),
        (
            "extern __loom_shared__ __attribute__((aligned(16))) unsigned char x[];",
            f"auto& x = {SHARED.format('unsigned char (*)[1048576]')};",
        ),
        ("extern float __loom_shared__ x[];", f"auto& x = {SHARED.format('float (*)[1048576]')};"),
        ("__loom_shared__ extern int x[][8];", f"auto& x = {SHARED.format('int (*)[1048576][8]')};"),
    ],
)
def test_shared_memory(declared: str, made: str) -> None:
    assert flat(rewrite(f"void f() {{ {declared} }}")) == flat(f"void f() {{ {made} }}")


def test_the_size_of_shared_memory_is_that_of_all_that_a_function_sees() -> None:
    code = "void f() { S int a[4]; { S int b; } if (x) { S int c, d[2]; } } void g() { S int e; }"
    made = rewrite(code.replace("S int", "__loom_shared__ int"))
    sizes = re.findall(r"static_assert\((.*?) <=", made)
    assert sizes == [
        "sizeof(a)",
        "sizeof(a) + sizeof(b)",
        "sizeof(a) + sizeof(c) + sizeof(d)",
        "sizeof(e)",
    ]


def test_shared_memory_outside_of_functions() -> None:
    made = flat(rewrite("namespace n { extern __loom_shared__ float x[]; void f() { x[1] = 2; } }"))
    memory = SHARED.format("float (*)[1048576]")
    assert made == f"namespace n {{ void f() {{ ({memory})[1] = 2; }} }}"


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ('asm volatile("mov.u32 %0, %laneid;" : "=r"(x));', "ptx_0, uint32_t(AS(::loom_cuda::lane())));"),
        (
            'asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));',
            "ptx_0, float(::loom::power_of_2(float(AS(ptx_1)))",
        ),
        (
            'asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(b + c), "f"(d));',
            "const auto ptx_2 = b + c;",
        ),
        ('asm volatile("membar.gl;" ::: "memory");', "do { } while (0);"),
        (
            'asm volatile("red.release.gpu.global.add.s32 [%0], %1;" :: "l"(p), "r"(n) : "memory");',
            "atomicAdd(::loom_cuda::ptx::at<int32_t>(ptx_0), AS(ptx_1))",
        ),
        (
            'asm volatile("atom.cas.acquire.gpu.b32 %0,[%1],%2,%3;" : "=r"(o) : "l"(p), "r"(a), "r"(b));',
            "atomicCAS(::loom_cuda::ptx::at<uint32_t>(ptx_1), AS(ptx_2), AS(ptx_3))",
        ),
        (
            'asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "l"(p));',
            "ptx_read1 = ::loom_cuda::ptx::read(::loom_cuda::ptx::at<float>(ptx_2) + 1)",
        ),
        (
            'asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(a) : "l"(p));',
            "::loom_cuda::ptx::read_now(",
        ),
        ('asm volatile("bar.warp.sync %0;" :: "r"(m));', "__syncwarp(AS(ptx_0));"),
        (
            'asm("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));',
            "__reduce_max_sync(uint32_t(4294967295ull), AS(ptx_1))",
        ),
    ],
)
def test_inline_ptx(code: str, made: str) -> None:
    found = re.sub(r"::loom::as<\w+>", "AS", flat(rewrite(f"void f() {{ {code} }}")))
    assert made in found


@pytest.mark.parametrize(
    "instruction",
    [
        "add.sat.s32 %0, %1, %1",
        "add.rz.f32 %0, %1, %1",
        "add.rm.f32 %0, %1, %1",
        "add.f32.f16 %0, %1, %1",
        "add.approx.f32 %0, %1, %1",
        "neg.rn.f32 %0, %1",
        "max.sat.f32 %0, %1, %1",
        "sqrt.approx.f64 %0, %1",
        "min.b32 %0, %1, %1",
        "popc.u32 %0, %1",
        "ld.global.v4.f32 {%0, %0}, [%1]",
        "ld.global.f32 {%0, %0}, [%1]",
        "st.global.v2.f32 [%1], %0",
        "add.cc.u32 %0, %1, %1",
        "mul.s32 %0, %1, %1",
        "mul.lo.f32 %0, %1, %1",
        "mul.wide.u64 %0, %1, %1",
        "mul.rz.f64 %0, %1, %1",
        "fma.rn.relu.f16 %0, %1, %1, %1",
        "max.f32 %0, %1, %1, %1",
        "min.NaN.s32 %0, %1, %1",
        "mov.b32 %0, 1.5",
        "mov.f32 %0, 1",
        "and.f32 %0, %1, %1",
        "prmt.b64 %0, %1, %1, %1",
        "shf.l.b32 %0, %1, %1, %1",
        "dp4a.s32.u16 %0, %1, %1, %1",
        "{ .reg .pred p; setp.lt.f16x2 p, %1, %1; }",
        "{ .reg .pred p; setp.lo.s32 p, %1, %1; }",
        "{ .reg .pred p; setp.ltu.s32 p, %1, %1; }",
        "{ .reg .pred p; setp.lt.b32 p, %1, %1; }",
        "{ .reg .pred p, q; setp.lt.nor.s32 p, %1, %1, q; }",
        "set.lt.f16.f16 %0, %1, %1",
        "{ .reg .b32 t; } mov.b32 %0, t",
        "mov.b32 %0, %1 }",
        "prmt.b32.rc8 %0, %1, %1, %1",
        "cvt.rm.f16.f32 %0, %1",
        "cvt.rn.relu.f16.f32 %0, %1",
        "cvt.rn.satfinite.f16.f32 %0, %1",
        "cvt.rz.f64.s64 %0, %1",
        "cvt.rz.f32.s64 %0, %1",
        "cvt.s32.f32 %0, %1",
        "cvt.rn.tf32.f32 %0, %1",
        "cvt.rna.satfinite.tf32.f32 %0, %1",
        "cvt.rn.satfinite.f16x2.f32 %0, %1, %1",
        "cvt.rp.f16x2.f32 %0, %1, %1",
        "cvt.rn.relu.f16x2.f32 %0, %1, %1",
        "cvt.rn.f16x2.f16 %0, %1, %1",
        "cvt.rn.e4m3x2.f32 %0, %1, %1",
        "cvt.rp.ue8m0x2.f32 %0, %1, %1",
        "cvt.pack.sat.u8.s32.b32 %0, %1, %1, %1",
        "max.relu.f16x2 %0, %1, %1",
        "add.e4m3x2 %0, %1, %1",
        "red.global.add.noftz.f16x2 [%0], %1",
        "atom.global.add.min.u32 %0, [%1], %1",
        "ld.global.f16 %0, [%1]",
        "{ .reg .pred p; cp.async.ca.shared.global [%1], [%1], 16, p; }",
        "ld.shared::cluster.u32 %0, [%1]",
        "shfl.bfly.b32 %0, %1, 1, 31",
        "shfl.sync.bfly.b64 %0, %1, 1, 31, -1",
        "shfl.sync.bfly.b32 %0, %1, 1, -1",
        "shfl.sync.bfly.b32 %0|%1, %1, 1, 31, -1",
        "{ .reg .pred p; shfl.sync.idx.b32 p, %1, 1, 31, -1; }",
        "vote.sync.ballot.b32 %0, %1, -1",
        "{ .reg .pred p; vote.ballot.b32 %0, p; }",
        "{ .reg .pred p; vote.sync.all.pred %0, p, -1; }",
        "match.any.b32.sync %0, %1, -1",
        "match.all.sync.u32 %0, %1, -1",
        "redux.sync.add.b32 %0, %1, -1",
        "redux.sync.min.f32 %0, %1, -1",
        "activemask %0",
        "barrier.warp.sync %1",
        "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0}, {%1}, {%1}, {%1}",
    ],
)
def test_what_would_be_another_number_is_refused(instruction: str) -> None:
    with pytest.raises(RefusedError, match="inline PTX"):
        rewrite(f'void f() {{ asm("{instruction};" : "=r"(a) : "r"(b)); }}')


def test_an_operand_in_the_register_of_another() -> None:
    found = flat(rewrite('void f() { asm("add.s32 %0, %0, %1;" : "=r"(y) : "r"(a), "0"(x)); }'))
    assert found.index("ptx_0 = x;") < found.index("::loom::put(ptx_0,")
    with pytest.raises(RefusedError, match="constraint '=q'"):
        rewrite('void f() { asm("mov.b32 %0, 0;" : "=q"(y)); }')


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        (
            '\nvoid f() { asm("mma.sync.aligned.m16n8k8 %0, %1;" : "=f"(a) : "f"(b)); }',
            2,
            r"inline PTX 'mma\.sync",
        ),
        (
            'void f() { asm("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" :: "l"(p), "f"(x)); }',
            1,
            r"inline PTX 'red\.global\.add\.v4\.f32",
        ),
        ("void f() { extern __loom_shared__ float x; }", 1, "declares an array"),
        ("void f() { k<<<1, 1; }", 1, "begins no launch"),
    ],
)
def test_refusals(code: str, line: int, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refusal:
        rewrite(code)
    assert (refusal.value.file, refusal.value.line) == ("code", line)


def test_refused_ptx_is_collected() -> None:
    refused: list[RefusedError] = []
    made = rewrite('void f() {\n asm("a.b \\t;");\n asm("membar.gl;"); asm("c;"); }', refused=refused)
    assert [refusal.line for refusal in refused] == [2, 3]
    assert "loom_refused_1()" in made
    assert made.count("\n") == 2


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("C<T>::to<n>(x);", "C<T>::template to<n>(x);"),
        (
            "y = c[0]->to<n - 1, sizeof(T)> (x).to<2>();",
            "y = c[0]->template to<n - 1, sizeof(T)> (x).template to<2>();",
        ),
        ("C<T>::template to<n>(x);", "C<T>::template to<n>(x);"),
        ("to<n>(x);", "to<n>(x);"),
        ("y = c.to < n;", "y = c.to < n;"),
        ("y = c.other<n>(x);", "y = c.other<n>(x);"),
        ('s = "c.to<n>(x)";', 's = "c.to<n>(x)";'),
    ],
)
def test_words_that_nvcc_does_without(code: str, made: str) -> None:
    declared = "struct C { template <int n> __attribute__((always_inline)) void to(T x) {} }; "
    defined = "template <> void C<int>::to<3>(int x) {} "
    assert with_template_words(f"{declared}{defined}void f() {{ {code} }}") == (
        f"{declared}{defined}void f() {{ {made} }}"
    )


def test_headers_of_the_system_are_left_alone() -> None:
    code = '# 1 "/usr/include/x.h" 1 3 4\nvoid f() { asm("mma.sync"); }\n'
    assert re.search("mma.sync", rewrite(code))


def test_options_of_nvcc() -> None:
    words = (
        "-gencode=arch=compute_80,code=sm_80 -gencode arch=x --expt-relaxed-constexpr -Xcompiler"
        " -fopenmp,-Wall --compiler-options '-fPIC' -DA=1 -I /x -isystem /y -std=c++17 -O3"
        " --use_fast_math -Xptxas -O3 --ptxas-options=-v --threads 4 -MD -MF d -lineinfo -c a.cu -o a.o"
    )
    command = nvcc.parse(words.split())
    assert (command.sources, command.output, command.compiles) == (["a.cu"], "a.o", True)
    assert command.compile == ["-fopenmp", "-Wall", "-fPIC", "-std=c++20", "-O3"]
    assert command.preprocess == ["-DA=1", "-I", "/x", "-isystem", "/y", "-MD", "-MF", "d"]
    with pytest.raises(ValueError, match="--frobnicate"):
        nvcc.parse(["--frobnicate", "a.cu"])
    assert nvcc.parse(["-forward-unknown-to-host-compiler", "--frobnicate"]).compile == ["--frobnicate"]
    with pytest.raises(ValueError, match="needs a value"):
        nvcc.parse(["a.cu", "-o"])


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("__loom_device__ int a;", "static int a;"),
        ("__loom_device__ __loom_device__ const float b[2] = {1, 2};", "static const float b[2] = {1, 2};"),
        (
            "static __loom_device__ int c = 4; extern __loom_device__ int d;",
            "static int c = 4; extern int d;",
        ),
        ("__loom_device__ std::array<float, (3)> e;", "static std::array<float, (3)> e;"),
        ("__loom_device__ int f(int x);", "int f(int x);"),
        (
            "__loom_device__ bool operator<(A a, A b) { return a == b; }",
            "bool operator<(A a, A b) { return a == b; }",
        ),
        ("__loom_device__ int A::member = 3;", "int A::member = 3;"),
        ("auto l = [=] __loom_device__ (int i) { return i; };", "auto l = [=] (int i) { return i; };"),
        ("struct S { __loom_device__ int x; };", "struct S { int x; };"),
        ("template <> __loom_device__ int v<3> = 4;", "template <> int v<3> = 4;"),
        ("template <int n> __loom_device__ int v = 4;", "template <int n> static int v = 4;"),
        ("__loom_device__ alignas(16) float x[4];", "alignas(16) static float x[4];"),
        ("__loom_device__ T<(1 < 2)> x;", "static T<(1 < 2)> x;"),
    ],
)
def test_variables_of_the_device_are_their_files_own(code: str, made: str) -> None:
    assert flat(rewrite(code)) == flat(made)


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("p = (void*)k<T, (1 < 2)>;", "p = ::loom_cuda::kernel_address(k<T, (1 < 2)>);"),
        ("p = (const void *)&k<int>;", "p = ::loom_cuda::kernel_address(k<int>);"),
        ("p = reinterpret_cast<void*>(k<int>);", "p = ::loom_cuda::kernel_address(k<int>);"),
        ("p = (void*)other;", "p = (void*)other;"),
        ("p = (void*)k.data();", "p = (void*)k.data();"),
        ("cudaLaunchKernel((void*)k<int>, g, b, a);", "cudaLaunchKernel(k<int>, g, b, a);"),
    ],
)
def test_addresses_of_kernels(code: str, made: str) -> None:
    kernel = "template <typename T> __loom_global__ void k(T* x) {} "
    assert flat(rewrite(kernel + code)) == flat(kernel.replace("__loom_global__ ", "") + made)


def test_variables_that_other_sources_know() -> None:
    assert flat(rewrite("__loom_device__ int a = 3;", is_relocatable=True)) == "int a = 3;"
    for options in ("-rdc=true", "-rdc true", "--relocatable-device-code=true", "-dc"):
        assert nvcc.parse([*options.split(), "a.cu"]).is_relocatable
    assert not nvcc.parse(["-rdc=false", "-c", "a.cu"]).is_relocatable


def test_shared_memory_of_the_sources_that_exist() -> None:
    assert flat(rewrite("static __loom_shared__ int s[160];")) == flat("static thread_local int s[160];")
    made = rewrite("void f() { extern __loom_shared__ float s[32][32]; }")
    assert "float (*)[1048576][32]" in made
