//! Parses a text: statements, definitions, expressions. After a mistake it goes on at the next line.
//!
//! ```text
//! text       = { line }
//! line       = "def" NAME "(" parameters ")" ":" | statement | "from" … | "import" …
//! statement  = NAME "=" expression | "return" expression | expression
//! expression = value { "|" value }
//! value      = [ "-" ] NUMBER | NAME | "(" expression { "," expression } ")" | lambda | value "(" arguments ")"
//! lambda     = "lambda" parameters ":" expression
//! ```

use std::ops::Range;
use std::rc::Rc;

use super::lex::{Piece, Token, pieces};
use super::mistake::Mistake;
use super::syntax::{Argument, Definition, Expression, Form, Module, Statement};
use crate::limits::SOLVER_DEPTH_MAX;

/// The module of a text, and its mistakes.
pub(super) fn module(text: &str) -> (Module, Vec<Mistake>) {
    let mut mistakes = Vec::new();
    let pieces = pieces(text, &mut mistakes);
    let mut parser = Parser { text, pieces, at: 0, depth: 0 };
    let mut module = Module::default();
    let mut open: Option<Open> = None;
    while parser.next() != &Token::End {
        if parser.next() == &Token::Line || parser.next() == &Token::Sign(";") {
            parser.at += 1;
            continue;
        }
        if parser.begins_line() && parser.column() == 0 {
            close(&mut open, &mut module, parser.here().start);
        }
        if let Err(mistake) = parser.line(&mut open, &mut module) {
            mistakes.push(mistake);
            parser.skip_line();
        }
    }
    close(&mut open, &mut module, text.len());
    (module, mistakes)
}

/// A definition whose body is being read.
struct Open {
    name: String,
    parameters: Rc<[String]>,
    body: Vec<Statement>,
    start: usize,
}

fn close(open: &mut Option<Open>, module: &mut Module, end: usize) {
    if let Some(Open { name, parameters, body, start }) = open.take() {
        let end = body.last().map_or(end, |last| last.span.end);
        let definition = Definition { name, parameters, body: body.into(), span: start..end };
        module.definitions.push(Rc::new(definition));
    }
}

struct Parser<'a> {
    text: &'a str,
    pieces: Vec<Piece>,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn next(&self) -> &Token {
        self.pieces.get(self.at).map_or(&Token::End, |piece| &piece.token)
    }

    fn here(&self) -> Range<usize> {
        let end = self.text.len();
        self.pieces.get(self.at).map_or(end..end, |piece| piece.span.clone())
    }

    fn begins_line(&self) -> bool {
        self.at == 0 || self.pieces[self.at - 1].token == Token::Line
    }

    fn column(&self) -> usize {
        let start = self.here().start;
        start - self.text[..start].rfind('\n').map_or(0, |end| end + 1)
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.next(), Token::Sign(next) if *next == sign)
    }

    /// Goes past the sign, or says what stands there instead.
    fn expect(&mut self, sign: &str, what: &str) -> Result<(), Mistake> {
        if self.is_sign(sign) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected(what))
    }

    fn unexpected(&self, what: &str) -> Mistake {
        let found = match self.next() {
            Token::Word(word) => format!("`{word}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::Line => "the end of the line".to_owned(),
            Token::End => "the end".to_owned(),
        };
        let mistake = Mistake::new(self.here(), format!("expected {what}, found {found}"));
        match self.next() {
            Token::Sign(sign) => match instead(sign) {
                Some(help) => mistake.with_help(help),
                None => mistake,
            },
            Token::Word(_) | Token::Number(_) | Token::Line | Token::End => mistake,
        }
    }

    fn skip_line(&mut self) {
        while !matches!(self.next(), Token::Line | Token::End) {
            self.at += 1;
        }
    }

    fn line(&mut self, open: &mut Option<Open>, module: &mut Module) -> Result<(), Mistake> {
        let start = self.here().start;
        if let Token::Word(word) = self.next() {
            match word.as_str() {
                "def" => {
                    close(open, module, start);
                    *open = Some(self.definition(start)?);
                    return Ok(());
                }
                "from" | "import" => {
                    self.skip_line();
                    return Ok(());
                }
                "for" | "while" | "if" | "elif" | "else" | "class" | "with" | "try" | "assert" => {
                    let message = format!("the language has no `{word}`");
                    let help = "write branch(condition, a, b) to choose, and apply(function, container), \
                                sfilter(container, condition) or another function for a loop";
                    return Err(Mistake::new(self.here(), message).with_help(help));
                }
                _ => {}
            }
        }
        let statement = self.statement(start)?;
        match open {
            Some(open) => open.body.push(statement),
            None => module.statements.push(statement),
        }
        match self.next() {
            Token::Line | Token::End | Token::Sign(";") => Ok(()),
            Token::Word(_) | Token::Number(_) | Token::Sign(_) => {
                Err(self.unexpected("the end of the line"))
            }
        }
    }

    fn definition(&mut self, start: usize) -> Result<Open, Mistake> {
        self.at += 1;
        let name = self.word("the name of the function")?;
        self.expect("(", "`(`")?;
        let mut parameters = Vec::new();
        while !self.is_sign(")") {
            parameters.push(self.word("the name of a parameter")?);
            if self.is_sign(":") {
                self.at += 1;
                self.expression()?;
            }
            if !self.is_sign(")") {
                self.expect(",", "`,` or `)`")?;
            }
        }
        self.at += 1;
        if self.is_sign("->") {
            self.at += 1;
            self.expression()?;
        }
        self.expect(":", "`:`")?;
        Ok(Open { name, parameters: parameters.into(), body: Vec::new(), start })
    }

    fn statement(&mut self, start: usize) -> Result<Statement, Mistake> {
        let name = match (self.next(), self.pieces.get(self.at + 1).map(|piece| &piece.token)) {
            (Token::Word(word), _) if word == "return" => {
                self.at += 1;
                None
            }
            (Token::Word(word), Some(Token::Sign("="))) => {
                let name = word.clone();
                self.at += 2;
                Some(name)
            }
            _ => None,
        };
        let value = self.expression()?;
        let span = start..value.span.end;
        Ok(Statement { name, value, span })
    }

    fn word(&mut self, what: &str) -> Result<String, Mistake> {
        match self.next() {
            Token::Word(word) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            Token::Number(_) | Token::Sign(_) | Token::Line | Token::End => {
                Err(self.unexpected(what))
            }
        }
    }

    fn expression(&mut self) -> Result<Expression, Mistake> {
        if self.depth == SOLVER_DEPTH_MAX {
            let message = format!("expressions nest deeper than {SOLVER_DEPTH_MAX}");
            return Err(Mistake::new(self.here(), message));
        }
        self.depth += 1;
        let result = self.pipe();
        self.depth -= 1;
        result
    }

    fn pipe(&mut self) -> Result<Expression, Mistake> {
        let mut left = self.value()?;
        while self.is_sign("|") {
            self.at += 1;
            let right = self.value()?;
            let span = left.span.start..right.span.end;
            left = Expression { form: Form::Pipe(Box::new(left), Box::new(right)), span };
        }
        Ok(left)
    }

    fn value(&mut self) -> Result<Expression, Mistake> {
        let mut value = self.primary()?;
        while self.is_sign("(") {
            let opens = self.here();
            self.at += 1;
            let arguments = self.arguments(opens)?;
            let span = value.span.start..self.pieces[self.at - 1].span.end;
            value = Expression { form: Form::Call { function: Box::new(value), arguments }, span };
        }
        Ok(value)
    }

    fn arguments(&mut self, opens: Range<usize>) -> Result<Vec<Argument>, Mistake> {
        let mut arguments = Vec::new();
        while !self.is_sign(")") {
            let named = match (self.next(), self.pieces.get(self.at + 1).map(|piece| &piece.token))
            {
                (Token::Word(word), Some(Token::Sign("="))) => Some(word.clone()),
                _ => None,
            };
            self.at += if named.is_some() { 2 } else { 0 };
            if matches!(self.next(), Token::Line | Token::End) {
                return Err(Mistake::new(opens, "this bracket is never closed"));
            }
            arguments.push(Argument { name: named, value: self.expression()? });
            match self.next() {
                Token::Sign(")") => {}
                Token::Sign(",") => self.at += 1,
                Token::Line | Token::End => {
                    return Err(Mistake::new(opens, "this bracket is never closed"));
                }
                Token::Word(_) | Token::Number(_) | Token::Sign(_) => {
                    return Err(self.unexpected("`,` or `)`"));
                }
            }
        }
        self.at += 1;
        Ok(arguments)
    }

    fn primary(&mut self) -> Result<Expression, Mistake> {
        let span = self.here();
        match self.next().clone() {
            Token::Word(word) => self.name(&word, span),
            Token::Number(number) => {
                self.at += 1;
                Ok(Expression { form: Form::Number(number), span })
            }
            Token::Sign("-") => {
                self.at += 1;
                let Token::Number(number) = *self.next() else {
                    return Err(self.unexpected("a number after `-`"));
                };
                let span = span.start..self.here().end;
                self.at += 1;
                Ok(Expression { form: Form::Number(-number), span })
            }
            Token::Sign("(") => self.brackets(span),
            Token::Sign(_) | Token::Line | Token::End => {
                Err(self.unexpected("a name, a number or a call"))
            }
        }
    }

    fn name(&mut self, word: &str, span: Range<usize>) -> Result<Expression, Mistake> {
        self.at += 1;
        let form = match word {
            "lambda" => return self.lambda(span.start),
            "True" | "true" => Form::Flag(true),
            "False" | "false" => Form::Flag(false),
            "None" | "not" | "and" | "or" | "in" | "is" | "if" | "else" | "for" => {
                let message = format!("`{word}` is not in the language");
                let mistake = Mistake::new(span, message);
                return Err(match instead(word) {
                    Some(help) => mistake.with_help(help),
                    None => mistake,
                });
            }
            _ => Form::Name(word.to_owned()),
        };
        Ok(Expression { form, span })
    }

    fn lambda(&mut self, start: usize) -> Result<Expression, Mistake> {
        let mut parameters = Vec::new();
        while !self.is_sign(":") {
            parameters.push(self.word("the name of a parameter, or `:`")?);
            if !self.is_sign(":") {
                self.expect(",", "`,` or `:`")?;
            }
        }
        self.at += 1;
        let body = Rc::new(self.expression()?);
        let span = start..body.span.end;
        Ok(Expression { form: Form::Lambda { parameters: parameters.into(), body }, span })
    }

    /// An expression in brackets, or a tuple.
    fn brackets(&mut self, opens: Range<usize>) -> Result<Expression, Mistake> {
        self.at += 1;
        let mut values = Vec::new();
        let mut is_tuple = self.is_sign(")");
        while !self.is_sign(")") {
            values.push(self.expression()?);
            match self.next() {
                Token::Sign(")") => {}
                Token::Sign(",") => {
                    is_tuple = true;
                    self.at += 1;
                }
                Token::Line | Token::End => {
                    return Err(Mistake::new(opens, "this bracket is never closed"));
                }
                Token::Word(_) | Token::Number(_) | Token::Sign(_) => {
                    return Err(self.unexpected("`,` or `)`"));
                }
            }
        }
        let span = opens.start..self.here().end;
        self.at += 1;
        match values.pop() {
            Some(value) if !is_tuple => Ok(Expression { span, ..value }),
            last => {
                values.extend(last);
                Ok(Expression { form: Form::Tuple(values), span })
            }
        }
    }
}

/// What to write instead of a sign or word of Python.
fn instead(sign: &str) -> Option<&'static str> {
    Some(match sign {
        "+" => "write add(a, b), or combine(a, b) for containers",
        "-" => "write subtract(a, b)",
        "*" => "write multiply(a, b)",
        "/" | "//" => "write divide(a, b), which rounds down",
        "==" => "write equality(a, b)",
        "!=" | "not" => "write flip(equality(a, b)), or flip(a)",
        "<" | ">" => "write greater(a, b)",
        "and" => "write both(a, b)",
        "or" => "write either(a, b)",
        "in" => "write contained(value, container)",
        "[" => "write first(x), last(x), or index(grid, loc) for a cell",
        "{" => "write initset(value) and insert(value, set)",
        "." => "values have no attributes: write function(value)",
        "if" | "else" => "write branch(condition, a, b)",
        "&" => "write intersection(a, b)",
        _ => return None,
    })
}
