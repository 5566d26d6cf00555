//! Handwritten digits that the network never saw.  usage: digits digits.so digits.test
mod mcc;
mod raw;

const SIDE: usize = 8;
const PIXELS: usize = SIDE * SIDE;
const NEEDED_PERCENT: usize = 97;

fn read_pictures(path: &str) -> std::io::Result<(Vec<u8>, Vec<f32>)> {
    let bytes = std::fs::read(path)?;
    let records = bytes.chunks_exact(1 + PIXELS); // the answer, then the pixels, 0 to 16
    Ok((records.clone().map(|r| r[0]).collect(), records.flat_map(|r| r[1..].iter().map(|&p| f32::from(p) / 16.0)).collect()))
}

fn best(probabilities: &[f32]) -> usize {
    (0..probabilities.len()).fold(0, |best, k| if probabilities[k] > probabilities[best] { k } else { best })
}

fn classify(library: &str, pictures: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let (answers, pixels) = read_pictures(pictures)?;
    let n = answers.len();
    let mut probabilities = vec![0f32; n * 10];
    let model = mcc::Model::load(library)?;
    for (name, dtype) in model.inputs().iter().chain(&model.outputs()) {
        println!("{name}: {} bits", dtype.bits);
    }
    let mut run = mcc::Context::new(&model)?;
    run.run(&[mcc::input(&pixels, &[n, 1, SIDE, SIDE])?], &mut [mcc::output(&mut probabilities, &[n, 10])?])?;
    let right = probabilities.chunks(10).zip(&answers).filter(|(p, &a)| best(p) == a as usize).count();
    println!("{right} of {n} pictures right");
    Ok(100 * right >= NEEDED_PERCENT * n)
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.len() != 3 {
        eprintln!("usage: digits digits.so digits.test");
        std::process::exit(2);
    }
    match classify(&words[1], &words[2]) {
        Ok(good) => std::process::exit(i32::from(!good)),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1);
        }
    }
}
