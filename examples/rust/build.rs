//! Compiles mcc's loader, one C file, into the program. MCC_RUNTIME: the folder of mcc_load.c; MCC_INCLUDE: of its
//! headers, where that is another one; CC: the compiler.
use std::{env, path::PathBuf, process::Command};

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let runtime = PathBuf::from(env::var_os("MCC_RUNTIME").unwrap_or("../../runtime".into()));
    let include = env::var_os("MCC_INCLUDE").map_or(runtime.clone(), PathBuf::from);
    let compiler = env::var_os("CC").unwrap_or("cc".into());
    println!("cargo:rerun-if-changed={}", runtime.join("mcc_load.c").display());
    for name in ["mcc_load.h", "mcc.h", "mcc_note.h"] {
        println!("cargo:rerun-if-changed={}", include.join(name).display());
    }
    for name in ["MCC_RUNTIME", "MCC_INCLUDE", "CC"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let object = out.join("mcc_load.o");
    let mut compile = Command::new(compiler);
    compile.args(["-std=gnu11", "-O2", "-fPIC", "-I"]).arg(&include).arg("-c").arg(runtime.join("mcc_load.c")).arg("-o").arg(&object);
    run(&mut compile);
    run(Command::new("ar").arg("crs").arg(out.join("libmcc_load.a")).arg(&object));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=mcc_load");
    println!("cargo:rustc-link-lib=dl"); // glibc before 2.34
}
