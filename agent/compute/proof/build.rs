//! Compiles the kernels for the host.

use std::path::Path;

fn main() {
    let kernels = Path::new("../src/cuda/kernels");
    for dir in [Path::new("cpp"), kernels] {
        println!("cargo::rerun-if-changed={}", dir.display());
    }
    let mut build = cc::Build::new();
    build
        .cpp(true)
        // What is built here also runs where nothing is installed. libtorch brings the shared one: two in a
        // process would be one too many.
        .cpp_link_stdlib_static(std::env::var_os("CARGO_FEATURE_TCH").is_none())
        .std("c++17")
        .file("cpp/emulation.cpp")
        .include("cpp")
        .include(kernels)
        .flag("-fno-exceptions")
        .flag("-Wno-unknown-pragmas")
        // Fibres' stacks are 64 KiB: unoptimised frames of the larger kernels do not fit.
        .opt_level(2);
    if let Err(error) = build.try_compile("pd_emulation") {
        println!(
            "cargo::error=the CUDA kernels were not compiled for the host: {error}; this takes a C++17 \
             compiler (Debian: apt-get install g++)"
        );
    }
}
