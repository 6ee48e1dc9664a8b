//! Parses a statement: names, `=`, and a value.

use super::super::lex::Token;
use super::super::mistake::Mistake;
use super::super::python::THE_END;
use super::super::syntax::{Expression, Form, Statement};
use super::{Parsed, Parser};

impl<'t> Parser<'t> {
    /// A statement, which is none if it only says of which type a name is, or one for each name on its left.
    pub(super) fn statement(&mut self, start: usize, into: &mut Vec<Statement<'t>>) -> Parsed<()> {
        let is_returned = self.is_word("return");
        let name = match (self.next(), self.second.token) {
            (Token::Word("return"), _) => {
                self.advance();
                None
            }
            (Token::Word(name), Token::Sign('=')) => {
                self.advance();
                self.advance();
                Some(name)
            }
            (Token::Word(name), Token::Sign(':')) if name != "lambda" => {
                self.advance();
                self.advance();
                self.read_over_type(&['=', ';'])?;
                if !self.is_sign('=') {
                    return Ok(());
                }
                self.advance();
                Some(name)
            }
            _ => None,
        };
        let value = self.row()?;
        if name.is_none() && !is_returned && self.is_sign('=') {
            return self.unpacked(start, value, into);
        }
        let span = start..value.span.end;
        into.push(Statement { name, is_returned, value, span });
        Ok(())
    }

    /// An expression, or several, which are a tuple without its brackets.
    fn row(&mut self) -> Parsed<Expression<'t>> {
        let first = self.expression()?;
        if !self.is_sign(',') {
            return Ok(first);
        }
        let (start, mut values) = (first.span.start, vec![first]);
        while self.is_sign(',') {
            self.advance();
            if matches!(self.next(), Token::Line | Token::End | Token::Sign('=' | ';')) {
                break;
            }
            values.push(self.expression()?);
        }
        let span = start..self.before.span.end;
        Ok(Expression { form: Form::Tuple(values), span })
    }

    /// `a, b = value`: the value gets the text on the left for its name, and each name a part of it. Of a tuple that is
    /// written out, the values get names of their own first.
    fn unpacked(
        &mut self,
        start: usize,
        left: Expression<'t>,
        into: &mut Vec<Statement<'t>>,
    ) -> Parsed<()> {
        let Form::Tuple(targets) = left.form else { return Err(self.unexpected(THE_END)) };
        let (of, place) = (&self.text[left.span.clone()], left.span);
        if targets.is_empty() {
            return Err(Mistake::new(place, "no name stands on the left of `=`").into());
        }
        let mut names = Vec::new();
        for target in targets {
            let Form::Name(name) = target.form else {
                let mistake =
                    Mistake::new(target.span, "this is no name, and stands on the left of `=`");
                return Err(mistake.into());
            };
            names.push((name, target.span));
        }
        self.advance();
        let value = self.row()?;
        let span = start..value.span.end;
        let mut add = |name, value| {
            into.push(Statement {
                name: Some(name),
                is_returned: false,
                value,
                span: span.clone(),
            });
        };
        let count = names.len();
        if let Form::Tuple(values) = &value.form
            && values.len() == count
        {
            let of_value = |value: &Expression<'t>| &self.text[start..value.span.end];
            let own: Vec<_> = values.iter().map(of_value).collect();
            own.iter().zip(values).for_each(|(own, value)| add(own, value.clone()));
            for ((name, span), own) in names.into_iter().zip(own) {
                add(name, Expression { form: Form::Name(own), span });
            }
            return Ok(());
        }
        add(of, value);
        for (number, (name, _)) in names.into_iter().enumerate() {
            let form = Form::Part { of, number, count };
            add(name, Expression { form, span: place.clone() });
        }
        Ok(())
    }
}
