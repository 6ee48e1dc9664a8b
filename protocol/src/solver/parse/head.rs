//! Parses the heads of definitions and lambdas, and what says nothing here: types, and the part of a file that runs it
//! as a script.

use super::super::lex::Token;
use super::super::open::Open;
use super::super::python::{
    A_PARAMETER, A_TYPE, BEHIND_A_PARAMETER, BEHIND_A_PARAMETER_OF_A_LAMBDA,
};
use super::super::syntax::{Expression, Form};
use super::{Parsed, Parser};

impl<'t> Parser<'t> {
    pub(super) fn definition(&mut self, start: usize) -> Parsed<Open<'t>> {
        self.advance();
        let name = self.word("the name of the function")?;
        if !self.is_sign('(') {
            return Err(self.unexpected("`(`"));
        }
        self.opens();
        let mut parameters = Vec::new();
        while !self.is_sign(')') {
            parameters.push(self.word(A_PARAMETER)?);
            if self.is_sign(':') {
                self.advance();
                self.read_over_type(&[',', ')', '='])?;
            }
            if !self.is_sign(')') {
                self.expect(',', BEHIND_A_PARAMETER)?;
            }
        }
        self.closes();
        if self.next() == Token::Signs("->") {
            self.advance();
            self.read_over_type(&[':'])?;
        }
        self.expect(':', "`:`")?;
        Ok(Open { name, parameters, body: Vec::new(), start })
    }

    pub(super) fn lambda(&mut self, start: usize) -> Parsed<Expression<'t>> {
        let mut parameters = Vec::new();
        while !self.is_sign(':') {
            parameters.push(self.word(A_PARAMETER)?);
            if !self.is_sign(':') {
                self.expect(',', BEHIND_A_PARAMETER_OF_A_LAMBDA)?;
            }
        }
        self.advance();
        let body = Box::new(self.expression()?);
        let span = start..body.span.end;
        Ok(Expression { form: Form::Lambda { parameters, body }, span })
    }

    /// Whether here begins `if __name__ == "__main__":`, which is no part of the program.
    pub(super) fn begins_script(&self) -> bool {
        self.is_word("if") && self.second.token == Token::Word("__name__")
    }

    /// Reads over a type, up to one of these signs outside of its brackets or the end of the line.
    pub(super) fn read_over_type(&mut self, ends: &[char]) -> Parsed<()> {
        let (mut depth, start) = (0_usize, self.here().start);
        loop {
            match self.next() {
                Token::Line | Token::End => break,
                Token::Sign(sign) if depth == 0 && ends.contains(&sign) => break,
                Token::Sign('(' | '[' | '{') => depth += 1,
                Token::Sign(')' | ']' | '}') if depth == 0 => break,
                Token::Sign(')' | ']' | '}') => depth -= 1,
                Token::Word(_)
                | Token::Number(_)
                | Token::Text
                | Token::Sign(_)
                | Token::Signs(_) => {}
            }
            self.advance();
        }
        if self.here().start == start { Err(self.unexpected(A_TYPE)) } else { Ok(()) }
    }
}
