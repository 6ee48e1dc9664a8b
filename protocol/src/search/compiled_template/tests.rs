//! Every program of a template is that of its text, and other bytes are refused.

use super::*;
use crate::search::compile;

const STEPS: u32 = 1_000;

fn compiled(text: &str) -> Option<CompiledTemplate> {
    let template = Template::parse(text).unwrap().unwrap();
    CompiledTemplate::compile(&template, Ties::Cpython, STEPS).map(|(compiled, _)| compiled)
}

#[test]
fn every_program_is_that_of_its_text() {
    for text in [
        "O = replace(I, ?a:color, ?b:color)",
        "replace(?a:color, ?b in [7, 8]) | ?f in [rot90, hmirror, transpose]",
        "x = ?f in [rot90, rot180](I)\nO = hconcat(x, ?f(x))",
        "O = shoot(ORIGIN, ?d:direction)\nO = fill(I, ?a in [1, 2], O)",
        "x = objects(I, ?u:bool, ?d:bool, ?w:bool)\nO = fill(I, 3, ?f in [merge, first](x))",
        "O = mapply(lambda x: shift(x, ?d:direction), objects(I, T, F, T))\nO = paint(I, recolor(?a:color, O))",
        "O = branch(portrait(I), fill(I, ?a:color, ofcolor(I, 1)), ?f in [rot90, rot180](I))",
        "O = canvas(3, (1, ?unused in [1, 2]))",
    ] {
        let template = Template::parse(text).unwrap().unwrap();
        let (compiled, order) =
            CompiledTemplate::compile(&template, Ties::Cpython, STEPS).expect(text);
        let template = template.in_order(order);
        assert_eq!(compiled.count(), template.count());
        let bytes = compiled.to_bytes();
        assert_eq!(CompiledTemplate::from_bytes(&bytes).unwrap(), compiled);
        for number in 0..template.count() {
            let (choice, one) = template.text(number);
            let want = compile(&one, Ties::Cpython, STEPS).unwrap();
            let got = compiled.code(number);
            // Where choices are equal the text has one constant or instruction fewer.
            let alike = want.instructions().len() == got.instructions().len()
                && want.constants().len() == got.constants().len();
            assert!(!alike || want == got, "{text} {choice}");
            assert_eq!(want.gives(), got.gives());
        }
    }
}

#[test]
fn what_is_not_alike_is_no_template() {
    for text in [
        // Unrolled.
        "O = o_g(I, ?t in [1, 2]) | argmax(size) | subgrid",
        // A text gives `x` a meaning of its own.
        "rot90 = hmirror(I)\nO = ?f in [vmirror, rot90](rot90)",
        "O = ?f in [rot90, mostcolor](I)",
        "O = ?f in [rot90, identity](I)",
        "O = fill(I, ?a in [1, T], ofcolor(I, 1))",
        "O = canvas(?a:color, (?b:color, ?b))\nO = size(O)",
        "O = ?f in [rot90](I, I)",
        // A text unrolls these, or refuses a word.
        "O = power(rot90, ?n in [1, 2, 3])(I)",
        "upscale(?n in [2, 3, 31]) | rot90",
        // The compiler works these off, or they are in a loop.
        "O = ?f in [argmax, argmin](objects(I, T, F, T), size) | subgrid",
        "O = fill(I, 1, mapply(lambda x: ?f in [backdrop, delta](x), objects(I, T, F, T)))",
    ] {
        assert_eq!(compiled(text), None, "{text}");
    }
    let many: Vec<_> = (0..=TEMPLATE_CHOICES_MAX).map(|at| at.to_string()).collect();
    let one = |words: &[String]| format!("O = canvas(?a in [{}], (1, 1))", words.join(", "));
    assert_eq!(compiled(&one(&many)), None);
    assert!(compiled(&one(&many[1..])).is_some());
}

#[test]
fn a_name_of_the_text_is_no_hole() {
    let compiled = compiled("hole0 = ?a in [1, 2]\nhole = 3\nO = canvas(hole0, (hole, hole))");
    let compiled = compiled.unwrap();
    let constants: Vec<_> = (0..2).map(|at| compiled.code(at).constants().to_vec()).collect();
    assert!(
        constants[0].contains(&Constant::Number(1)) && constants[0].contains(&Constant::Number(3))
    );
    assert!(
        constants[1].contains(&Constant::Number(2)) && constants[1].contains(&Constant::Number(3))
    );
}

#[test]
fn bytes_that_are_no_template_are_refused() {
    let whole = compiled("O = ?f in [rot90, rot180](replace(I, ?a:color, 3))").unwrap();
    let bytes = whole.to_bytes();
    for end in 0..bytes.len() - 8 {
        assert!(CompiledTemplate::from_bytes(&bytes[..end]).is_err(), "{end}");
    }
    // Every other byte makes a template whose programs are programs, or none.
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut odd = bytes.clone();
            odd[at] ^= 1 << bit;
            if let Ok(read) = CompiledTemplate::from_bytes(&odd) {
                (0..read.count()).for_each(|number| drop(read.code(number)));
            }
        }
    }
    let of = |change: fn(&mut CompiledTemplate)| {
        let mut odd = whole.clone();
        change(&mut odd);
        CompiledTemplate::from_bytes(&odd.to_bytes()).unwrap_err().to_string()
    };
    let twice = of(|odd| odd.holes[0].places = [odd.holes[0].places[0]; 2].to_vec());
    assert!(twice.contains("one place"), "{twice}");
    assert!(of(|odd| odd.holes[0].choices.clear()).contains("no choice"));
    // The opcodes change first: they are needed last.
    assert!(of(|odd| odd.holes[0].choices[0] = 8).contains("makes no program"));
    assert!(of(|odd| odd.holes[0].places[0] = 17).contains("no constant"));
    assert!(of(|odd| odd.holes.reverse()).contains("order"));
    let both = of(|odd| {
        let more = odd.holes[0].places.clone();
        odd.holes[1].places.extend(more);
    });
    assert!(both.contains("a constant and an opcode"), "{both}");
}
