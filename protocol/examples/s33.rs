use gridpool_protocol::program::Ties;
use gridpool_protocol::search::compile;
use gridpool_protocol::solver::Code;
fn main() {
    const TURNS: [&str; 7] = ["rot90", "rot180", "rot270", "hmirror", "vmirror", "dmirror", "cmirror"];
    const KEYS: [&str; 6] = ["size", "height", "width", "uppermost", "leftmost", "color"];
    let mut s = 12345u64;
    let mut below = |n: u64| { s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (s >> 33) % n };
    let texts: Vec<String> = (0..20000u64).map(|at| {
        let (a, b) = (below(10), below(10));
        let (t, k, l) = (TURNS[below(7) as usize], KEYS[below(6) as usize], TURNS[below(7) as usize]);
        format!("x1 = objects(I, T, T, T)\nx2 = argmax(x1, {k})\nx3 = subgrid(x2, I)\nx4 = {t}(x3)\nx5 = replace(x4, {a}, {b})\nx6 = fill(x5, {a}, initset(({}, {})))\nO = {l}(x6)", at / 250, at % 250)
    }).collect();
    for _ in 0..3 {
        let started = std::time::Instant::now();
        let mut n = 0;
        for text in &texts {
            let code = compile(text, Ties::Cpython, 10000).unwrap();
            n += usize::from(Code::digest(&code.to_bytes())[0] < 200);
        }
        println!("{n} {:.2} us each", started.elapsed().as_secs_f64() * 1e6 / 20000.0);
    }
}
