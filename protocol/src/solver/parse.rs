//! Parses a text: statements, definitions, expressions. After a mistake it goes on at the next line.
//!
//! ```text
//! text       = { line }
//! line       = "def" NAME "(" parameters ")" ":" | statement | "from" … | "import" …
//! statement  = NAME { "," NAME } "=" expression | "return" expression | expression
//! expression = value { "|" value }
//! value      = [ "-" ] NUMBER | NAME | "(" expression { "," expression } ")" | lambda | value "(" arguments ")"
//! lambda     = "lambda" parameters ":" expression
//! ```

mod head;
mod statement;

use std::ops::Range;

use super::indents::{Indents, Place};
use super::lex::{Lexer, Piece, Token, UNCLOSED_STRING};
use super::mistake::Mistake;
use super::open::{Open, close};
use super::python::{
    A_NUMBER, A_VALUE, BLOCKS, THE_END, instead, instead_of_block, instead_of_expected,
};
use super::syntax::{Argument, Expression, Form, Module, Statement};
use crate::limits::SOLVER_DEPTH_MAX;

/// Bytes of a usual statement, or fewer.
const STATEMENT_BYTES: usize = 16;

/// A part of a text, or its mistake.
type Parsed<T> = Result<T, Box<Mistake>>;

/// The module of a text, and its mistakes.
pub(super) fn module(text: &str) -> (Module<'_>, Vec<Mistake>) {
    let mut mistakes = Vec::new();
    let mut parser = Parser::new(text);
    let mut indents = Indents::default();
    let mut module = Module::default();
    let mut outside = Vec::with_capacity(text.len() / STATEMENT_BYTES);
    let mut open: Option<Open<'_>> = None;
    while parser.next() != Token::End {
        // A string that is a statement is a description.
        if matches!(parser.next(), Token::Line | Token::Sign(';') | Token::Text) {
            parser.advance();
            continue;
        }
        let indent = parser.indent();
        if parser.begins_line() {
            let is_head = open.as_ref().is_some_and(|open| open.body.is_empty());
            match indents.place(indent, is_head) {
                Place::Inside => {}
                Place::Outside => {
                    let end = parser.here().start;
                    mistakes.append(&mut parser.lexer.mistakes);
                    close(&mut open, &mut module, text, end, &mistakes);
                }
                Place::Skipped => {
                    parser.leave_out_line();
                    continue;
                }
                Place::Wrong(message) => {
                    mistakes.push(Mistake::new(parser.here(), message));
                    parser.skip_line();
                    continue;
                }
            }
        }
        if open.is_none() && parser.begins_script() {
            parser.leave_out_line();
            indents.skip_below(indent);
            continue;
        }
        let is_block = parser.begins_block() && (open.is_some() || !parser.is_word("def"));
        parser.brackets.clear();
        if let Err(mistake) = parser.line(&mut open, &mut outside) {
            mistakes.push(*mistake);
            parser.skip_line();
            if is_block {
                indents.skip_below(indent);
            }
        }
    }
    mistakes.append(&mut parser.lexer.mistakes);
    close(&mut open, &mut module, text, text.len(), &mistakes);
    module.statements = outside;
    (module, mistakes)
}

struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The piece before the next, the next, and the one behind it.
    before: Piece<'t>,
    next: Piece<'t>,
    second: Piece<'t>,
    depth: usize,
    /// The brackets of the statement that are open, the outermost first.
    brackets: Vec<Range<usize>>,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Self {
        let mut lexer = Lexer::new(text);
        let before = Piece { token: Token::Line, span: 0..0 };
        let (next, second) = (lexer.next(), lexer.next());
        Self { text, lexer, before, next, second, depth: 0, brackets: Vec::new() }
    }

    fn next(&self) -> Token<'t> {
        self.next.token
    }

    fn here(&self) -> Range<usize> {
        self.next.span.clone()
    }

    /// Goes past the next piece.
    fn advance(&mut self) {
        let second = std::mem::replace(&mut self.second, self.lexer.next());
        self.before = std::mem::replace(&mut self.next, second);
    }

    fn is_on_new_line(&self) -> bool {
        self.text[self.before.span.end..self.next.span.start].contains('\n')
    }

    /// Whether no statement goes on here, though a bracket may be open.
    fn ends_statement(&self) -> bool {
        match self.next() {
            Token::Line | Token::End => true,
            Token::Word(word) => self.is_on_new_line() || matches!(word, "def" | "return"),
            Token::Number(_) | Token::Text => self.is_on_new_line(),
            Token::Sign(_) | Token::Signs(_) => false,
        }
    }

    fn begins_line(&self) -> bool {
        self.before.token == Token::Line
    }

    /// The white space at the begin of the line.
    fn indent(&self) -> &'t str {
        let before = &self.text[..self.here().start];
        let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
        &line[..line.len() - line.trim_start().len()]
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.next(), Token::Word(next) if next == word)
    }

    fn begins_block(&self) -> bool {
        matches!(self.next(), Token::Word(word) if word == "def" || BLOCKS.contains(&word))
    }

    fn is_sign(&self, sign: char) -> bool {
        self.next() == Token::Sign(sign)
    }

    /// Goes past the sign, or says what stands there instead.
    fn expect(&mut self, sign: char, what: &str) -> Parsed<()> {
        if self.is_sign(sign) {
            self.advance();
            return Ok(());
        }
        Err(self.unexpected(what))
    }

    fn unexpected(&self, what: &str) -> Box<Mistake> {
        if let Some(opens) = self.brackets.last().filter(|_| self.ends_statement()) {
            return Mistake::new(opens.clone(), "this bracket is never closed").into();
        }
        let found = match self.next() {
            Token::Word(word) => format!("`{word}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Text => "a string".to_owned(),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::Signs(signs) => format!("`{signs}`"),
            Token::Line => "the end of the line".to_owned(),
            Token::End => "the end".to_owned(),
        };
        let mistake = Mistake::new(self.here(), format!("expected {what}, found {found}"));
        match instead_of_expected(what, &self.text[self.here()]) {
            Some(help) => mistake.with_help(help).into(),
            None => mistake.into(),
        }
    }

    /// Goes into a bracket.
    fn opens(&mut self) {
        self.brackets.push(self.here());
        self.advance();
    }

    /// Goes out of the innermost bracket.
    fn closes(&mut self) {
        self.brackets.pop();
        self.advance();
    }

    /// Goes past a line that is not read, whatever its mistakes, but for what would hide the lines below it.
    fn leave_out_line(&mut self) {
        let start = self.here().start;
        self.skip_line();
        let end = self.here().start;
        let mistakes = &mut self.lexer.mistakes;
        let before = mistakes.iter().rposition(|mistake| mistake.span.start < start);
        let own = mistakes.split_off(before.map_or(0, |at| at + 1));
        let stays =
            |mistake: &Mistake| mistake.span.start >= end || mistake.message == UNCLOSED_STRING;
        mistakes.extend(own.into_iter().filter(stays));
        self.closes_brackets_since(start);
    }

    /// Says so if the line that begins there, and is behind us, has left a bracket open.
    fn closes_brackets_since(&mut self, start: usize) {
        // Such a line ends with the text or before a `def`, and not with a line feed.
        let (end, is_cut) = (self.here().start, self.here().is_empty());
        if is_cut && (end < self.text.len() || self.lexer.depth > 0) {
            let message = "a bracket that this line opens is never closed";
            self.lexer.mistakes.push(Mistake::new(start..start, message));
        }
    }

    fn skip_line(&mut self) {
        while !matches!(self.next(), Token::Line | Token::End) {
            self.advance();
        }
    }

    fn line(
        &mut self,
        open: &mut Option<Open<'t>>,
        outside: &mut Vec<Statement<'t>>,
    ) -> Parsed<()> {
        let start = self.here().start;
        if let Token::Word(word) = self.next() {
            match word {
                "def" if open.is_some() => {
                    let message = "a `def` stands inside of another function";
                    let help = "move it out of the function, or write NAME = lambda x: …";
                    return Err(Mistake::new(self.here(), message).with_help(help).into());
                }
                "def" => {
                    let name = if let Token::Word(name) = self.second.token { name } else { "" };
                    let (parameters, body) = (Vec::new(), Vec::new());
                    // The text of a function without a head is its own all the same.
                    let headless = Open { name, parameters, body, start };
                    let made = self.definition(start);
                    let (made, outcome) = match made {
                        Ok(made) => (made, Ok(())),
                        Err(mistake) => (headless, Err(mistake)),
                    };
                    *open = Some(made);
                    return outcome;
                }
                "from" | "import" => {
                    self.skip_line();
                    self.closes_brackets_since(start);
                    return Ok(());
                }
                word if BLOCKS.contains(&word) => {
                    let message = format!("the language has no `{word}`");
                    let mistake = Mistake::new(self.here(), message);
                    return Err(mistake.with_help(instead_of_block(word)).into());
                }
                _ => {}
            }
        }
        let statements = match open {
            Some(open) => &mut open.body,
            None => outside,
        };
        self.statement(start, statements)?;
        match self.next() {
            Token::Line | Token::End | Token::Sign(';') => Ok(()),
            Token::Word(_) | Token::Number(_) | Token::Text | Token::Sign(_) | Token::Signs(_) => {
                Err(self.unexpected(THE_END))
            }
        }
    }

    fn word(&mut self, what: &str) -> Parsed<&'t str> {
        match self.next() {
            Token::Word(word) => {
                self.advance();
                Ok(word)
            }
            Token::Number(_)
            | Token::Text
            | Token::Sign(_)
            | Token::Signs(_)
            | Token::Line
            | Token::End => Err(self.unexpected(what)),
        }
    }

    fn expression(&mut self) -> Parsed<Expression<'t>> {
        if self.depth == SOLVER_DEPTH_MAX {
            let message = format!("expressions nest deeper than {SOLVER_DEPTH_MAX}");
            return Err(Mistake::new(self.here(), message).into());
        }
        self.depth += 1;
        let result = self.pipe();
        self.depth -= 1;
        result
    }

    fn pipe(&mut self) -> Parsed<Expression<'t>> {
        let mut left = self.value()?;
        while self.is_sign('|') {
            self.advance();
            let right = self.value()?;
            let span = left.span.start..right.span.end;
            left = Expression { form: Form::Pipe(Box::new(left), Box::new(right)), span };
        }
        Ok(left)
    }

    fn value(&mut self) -> Parsed<Expression<'t>> {
        let mut value = self.primary()?;
        while self.is_sign('(') {
            let arguments = self.arguments()?;
            let span = value.span.start..self.before.span.end;
            value = Expression { form: Form::Call { function: Box::new(value), arguments }, span };
        }
        Ok(value)
    }

    fn arguments(&mut self) -> Parsed<Vec<Argument<'t>>> {
        self.opens();
        let mut arguments = Vec::new();
        while !self.is_sign(')') {
            let named = match (self.next(), self.second.token) {
                (Token::Word(name), Token::Sign('=')) => Some(name),
                _ => None,
            };
            if named.is_some() {
                self.advance();
                self.advance();
            }
            arguments.push(Argument { name: named, value: self.expression()? });
            if !self.is_sign(')') {
                self.expect(',', "`,` or `)`")?;
            }
        }
        self.closes();
        Ok(arguments)
    }

    fn primary(&mut self) -> Parsed<Expression<'t>> {
        let span = self.here();
        match self.next() {
            Token::Word(word) => self.name(word, span),
            Token::Number(number) => {
                self.advance();
                Ok(Expression { form: Form::Number(number), span })
            }
            Token::Text => {
                let message = "there are no strings in the language";
                self.lexer.mistakes.push(Mistake::new(span.clone(), message));
                self.advance();
                Ok(Expression { form: Form::Number(0), span })
            }
            Token::Sign('-') => {
                self.advance();
                let Token::Number(number) = self.next() else {
                    return Err(self.unexpected(A_NUMBER));
                };
                let span = span.start..self.here().end;
                self.advance();
                Ok(Expression { form: Form::Number(-number), span })
            }
            Token::Sign('(') => self.tuple(span),
            Token::Sign(_) | Token::Signs(_) | Token::Line | Token::End => {
                Err(self.unexpected(A_VALUE))
            }
        }
    }

    fn name(&mut self, word: &'t str, span: Range<usize>) -> Parsed<Expression<'t>> {
        if matches!(word, "def" | "return") {
            return Err(self.unexpected(A_VALUE));
        }
        self.advance();
        let form = match word {
            "lambda" => return self.lambda(span.start),
            "True" | "true" => Form::Flag(true),
            "False" | "false" => Form::Flag(false),
            "None" | "not" | "and" | "or" | "in" | "is" | "if" | "else" | "for" => {
                let message = format!("`{word}` is not in the language");
                let mistake = Mistake::new(span, message);
                return Err(match instead(word) {
                    Some(help) => mistake.with_help(help).into(),
                    None => mistake.into(),
                });
            }
            _ => Form::Name(word),
        };
        Ok(Expression { form, span })
    }

    /// An expression in brackets, or a tuple.
    fn tuple(&mut self, opens: Range<usize>) -> Parsed<Expression<'t>> {
        self.opens();
        let mut values = Vec::new();
        let mut is_tuple = self.is_sign(')');
        while !self.is_sign(')') {
            values.push(self.expression()?);
            if !self.is_sign(')') {
                self.expect(',', "`,` or `)`")?;
                is_tuple = true;
            }
        }
        let span = opens.start..self.here().end;
        self.closes();
        match values.pop() {
            Some(value) if !is_tuple => Ok(Expression { span, ..value }),
            last => {
                values.extend(last);
                Ok(Expression { form: Form::Tuple(values), span })
            }
        }
    }
}
