//! Compiles the C++ faces of RocksDB and LevelDB (src/kv/native) and links Debian's libraries.
//!
//! `librocksdb-dev` and `libleveldb-dev` are needed here, their run-time halves to start the binary.

fn main() {
    let parts = ["engine.h", "bluefs.cc", "face.cc", "level.cc", "rocks.cc"];
    for part in parts {
        println!("cargo:rerun-if-changed=src/kv/native/{part}");
    }
    let sources = parts.iter().filter(|part| part.ends_with(".cc"));
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        // Debian builds LevelDB without: classes derived from its own would miss their parents'.
        .flag("-fno-rtti")
        .opt_level(2)
        .files(sources.map(|part| format!("src/kv/native/{part}")))
        .compile("loligo_kv");
    println!("cargo:rustc-link-lib=dylib=rocksdb");
    println!("cargo:rustc-link-lib=dylib=leveldb");
}
