//! Applies functions to the elements of containers: loops with inlined bodies, or one call for each known element.

use std::rc::Rc;
use std::slice;

use super::builtin::Does;
use super::closure::{Closure, Each, Value};
use super::code::Constant;
use super::elaborate::{Elaborator, Halt, Made};
use super::ir::{Block, NodeId, Op, Scope};
use super::kind::Kind;
use super::opcode::{Opcode, Primitive};
use super::want::Want;

/// Most elements of a constant `interval` that are worked off one by one.
const UNROLLED_MAX: usize = 64;

impl<'t> Elaborator<'t> {
    /// Works off a builtin. The number of arguments and which are functions has been checked.
    pub(super) fn builtin(&mut self, does: Does, arguments: &[Value<'t>]) -> Made<Value<'t>> {
        let mut arguments = arguments.iter().cloned();
        let mut next = || arguments.next().ok_or(Halt::Noted);
        match does {
            Does::Identity => next(),
            Does::AsTuple => {
                let items = vec![next()?, next()?];
                self.settled(false, items)
            }
            Does::Branch => {
                let condition = next()?;
                self.branch(&condition, next()?, next()?)
            }
            Does::Compose => Ok(Closure::Compose(vec![next()?, next()?]).into()),
            Does::Chain => Ok(Closure::Compose(vec![next()?, next()?, next()?]).into()),
            Does::Fork => Ok(Closure::Fork { outer: next()?, a: next()?, b: next()? }.into()),
            Does::Matcher => Ok(Closure::Matcher { function: next()?, target: next()? }.into()),
            Does::RBind => self.bound(next()?, next()?, false),
            Does::LBind => self.bound(next()?, next()?, true),
            Does::Power => self.power(next()?, &next()?),
            Does::Apply => self.map(&next()?, &next()?),
            Does::RApply => self.rapply(&next()?, &next()?),
            Does::MApply => {
                let mapped = self.map(&next()?, &next()?)?;
                self.merged(mapped)
            }
            Does::PApply => self.zip(&next()?, &next()?, &next()?),
            Does::MPApply => {
                let zipped = self.zip(&next()?, &next()?, &next()?)?;
                self.merged(zipped)
            }
            Does::PRApply => self.pairs(&next()?, &next()?, &next()?),
            Does::SFilter => {
                let container = next()?;
                self.filtered(&container, &next()?)
            }
            Does::MFilter => {
                let container = next()?;
                let filtered = self.filtered(&container, &next()?)?;
                self.merged(filtered)
            }
            Does::Extract => self.best(Opcode::Extract, &next()?, &next()?),
            Does::ArgMax => self.best(Opcode::ArgMax, &next()?, &next()?),
            Does::ArgMin => self.best(Opcode::ArgMin, &next()?, &next()?),
            Does::ValMax => self.best(Opcode::ValMax, &next()?, &next()?),
            Does::ValMin => self.best(Opcode::ValMin, &next()?, &next()?),
            Does::Order => self.best(Opcode::Order, &next()?, &next()?),
            Does::ObjectsByType => {
                let grid = next()?;
                self.objects_by_type(grid, &next()?)
            }
        }
    }

    fn bound(&mut self, function: Value<'t>, fixed: Value<'t>, first: bool) -> Made<Value<'t>> {
        match function.arity() {
            Some(arity) if arity >= 2 => {
                Ok(Closure::Bound { function, fixed, first, arity: arity - 1 }.into())
            }
            Some(_) | None => {
                let words = self.words(&function);
                self.mistake(format!("{words} has no argument to fix: it takes fewer than 2"))
            }
        }
    }

    fn power(&mut self, function: Value<'t>, times: &Value<'t>) -> Made<Value<'t>> {
        let times = self.node(times)?;
        match self.builder.nodes[times].op {
            Op::Constant(Constant::Number(number)) => match u32::try_from(number) {
                Ok(times) if times > 0 => Ok(Closure::Power { function, times }.into()),
                _ => self.mistake(format!("power wants a number of at least 1; it gets {number}")),
            },
            // A text unrolls it.
            Op::Hole(..) => self.mistake("a hole says how often a function is applied"),
            Op::Constant(_) | Op::Input | Op::Parameter | Op::Machine(_) | Op::Chosen(..) => {
                Ok(Closure::Repeated { function, times }.into())
            }
        }
    }

    /// The function applied a number of times that is known when the solver runs.
    pub(super) fn iterate(
        &mut self,
        function: &Value<'t>,
        times: NodeId,
        start: &Value<'t>,
    ) -> Made<Value<'t>> {
        let mut start = self.node(start)?;
        let mut kind = self.kind_of(start);
        loop {
            let (scope, (parameter, result)) = self.arm(|this| {
                let parameter = this.builder.parameter(kind.clone());
                let result = this.call(function, &[Value::Node(parameter)], &[])?;
                Ok((parameter, this.node(&result)?))
            })?;
            let Some(joined) = kind.join_containers(&self.kind_of(result)) else {
                let result = self.kind_of(result);
                return self.mistake(format!(
                    "power wants a function that keeps the kind; it makes {result} of {kind}"
                ));
            };
            if joined == kind {
                let (scope, result) = self.resumed(scope, |this| this.convert(result, &kind))?;
                let body = Block { parameters: vec![parameter], nodes: scope.nodes, result };
                let made = self.emit_with(Opcode::Iterate, &[start, times], kind, vec![body]);
                return made.map(Value::Node);
            }
            start = self.convert(start, &joined)?;
            kind = joined;
        }
    }

    /// A container as a node that loops can go through.
    pub(super) fn container(&mut self, value: &Value<'t>) -> Made<(NodeId, Kind)> {
        let node = self.node(value)?;
        let kind = self.kind_of(node);
        let Some(accepted) = Want::Container.accept(&kind) else {
            return self.mistake(format!("a set or a tuple is needed here; this is {kind}"));
        };
        let node = self.convert(node, &accepted)?;
        let element = accepted.element().cloned().ok_or(Halt::Noted)?;
        Ok((node, element))
    }

    fn is_set(&self, node: NodeId) -> bool {
        matches!(self.builder.kind(node), Kind::Set(_))
    }

    /// The elements of a tuple whose length is known.
    pub(super) fn items(&mut self, value: &Value<'t>) -> Made<Option<Vec<Value<'t>>>> {
        let node = match value {
            Value::Static(of) => return Ok(Some(of.items.clone())),
            Value::Node(node) => *node,
            Value::Function(_) | Value::Each(_) | Value::Choice(_) => return Ok(None),
        };
        let found = &self.builder.nodes[node];
        match found.op {
            Op::Machine(Opcode::Pair | Opcode::Tuple) => {
                let items = self.builder.nodes.arguments(node).iter();
                Ok(Some(items.copied().map(Value::Node).collect()))
            }
            Op::Machine(Opcode::Convert) if matches!(found.kind, Kind::Tuple(_)) => {
                let from = self.builder.nodes.arguments(node)[0];
                match self.builder.kind(from) {
                    Kind::Pair(_) | Kind::Tuple(_) | Kind::Vector => self.items(&Value::Node(from)),
                    Kind::Never
                    | Kind::Flag
                    | Kind::Number
                    | Kind::Cell
                    | Kind::Place
                    | Kind::Grid
                    | Kind::Set(_) => Ok(None),
                }
            }
            Op::Machine(Opcode::Combine) if !self.is_set(node) => {
                let parts = self.builder.nodes.arguments(node).to_vec();
                let mut items = Vec::new();
                for part in parts {
                    let Some(more) = self.items(&Value::Node(part))? else { return Ok(None) };
                    items.extend(more);
                }
                Ok(Some(items))
            }
            Op::Machine(_)
            | Op::Chosen(..)
            | Op::Input
            | Op::Constant(_)
            | Op::Hole(..)
            | Op::Parameter => {
                let Some((first, last)) = found.kind.halves() else { return Ok(None) };
                let first = self.emit(Opcode::First, &[node], first)?;
                let last = self.emit(Opcode::Last, &[node], last)?;
                Ok(Some(vec![Value::Node(first), Value::Node(last)]))
            }
        }
    }

    /// The numbers of a constant `interval`, if there are few. A hole is no bound: a text may unroll what it begins.
    pub(super) fn interval(&mut self, node: NodeId) -> Made<Option<Vec<Value<'t>>>> {
        if self.builder.nodes[node].op != Op::Machine(Opcode::Interval) {
            return Ok(None);
        }
        let mut bounds = Vec::new();
        for argument in self.builder.nodes.arguments(node) {
            match self.builder.nodes[*argument].op {
                Op::Constant(Constant::Number(number)) => bounds.push(i64::from(number)),
                Op::Hole(..) => return self.mistake("a hole is a bound of an interval"),
                Op::Input | Op::Constant(_) | Op::Parameter | Op::Machine(_) | Op::Chosen(..) => {
                    return Ok(None);
                }
            }
        }
        Ok(self.unrolled(&bounds))
    }

    fn unrolled(&mut self, bounds: &[i64]) -> Option<Vec<Value<'t>>> {
        let [start, stop, step] = *bounds else { return None };
        let mut numbers = Vec::new();
        let mut at = start;
        while step > 0 && at < stop || step < 0 && at > stop {
            if numbers.len() == UNROLLED_MAX {
                return None;
            }
            numbers.push(i32::try_from(at).ok()?);
            at += step;
        }
        Some(numbers.into_iter().map(|number| self.constant(Constant::Number(number))).collect())
    }

    /// `apply(function, container)`.
    pub(super) fn map(&mut self, function: &Value<'t>, container: &Value<'t>) -> Made<Value<'t>> {
        match container {
            Value::Each(each) => {
                let each = Rc::clone(each);
                return self.continued(&each, |this, value| this.call(function, &[value], &[]));
            }
            Value::Node(_) | Value::Static(_) | Value::Function(_) | Value::Choice(_) => {}
        }
        if let Some(items) = self.items(container)? {
            let is_set = matches!(container, Value::Static(of) if of.is_set);
            return self.one_by_one(is_set, items, function);
        }
        let (base, element) = self.container(container)?;
        let (scope, (parameter, value)) = self.arm(|this| {
            let parameter = this.builder.parameter(element);
            Ok((parameter, this.call(function, &[Value::Node(parameter)], &[])?))
        })?;
        if !value.is_data()
            && let Some(items) = self.interval(base)?
        {
            return self.one_by_one(false, items, function);
        }
        let is_set = self.is_set(base);
        self.each(Each { is_set, base, parameter, scope, value })
    }

    fn one_by_one(
        &mut self,
        is_set: bool,
        items: Vec<Value<'t>>,
        function: &Value<'t>,
    ) -> Made<Value<'t>> {
        let mut results = Vec::new();
        for item in items {
            results.push(self.call(function, &[item], &[])?);
        }
        self.settled(is_set, results)
    }

    /// A loop that maps, or a container of functions.
    fn each(&mut self, each: Each<'t>) -> Made<Value<'t>> {
        if !each.value.is_data() {
            return Ok(Value::Each(Rc::new(each)));
        }
        let (scope, result) = self.resumed(each.scope, |this| this.node(&each.value))?;
        let kind = self.kind_of(result);
        let kind = if each.is_set { Kind::set(kind) } else { Kind::tuple(kind) };
        let base = match (each.is_set, self.is_set(each.base)) {
            (false, true) => {
                let kind = self.builder.kind(each.base).element().cloned().ok_or(Halt::Noted)?;
                self.emit(Opcode::ToTuple, &[each.base], Kind::tuple(kind))?
            }
            _ => each.base,
        };
        let body = Block { parameters: vec![each.parameter], nodes: scope.nodes, result };
        self.emit_with(Opcode::Map, &[base], kind, vec![body]).map(Value::Node)
    }

    /// Goes on computing for each element of a container of functions.
    fn continued(
        &mut self,
        each: &Each<'t>,
        compute: impl FnOnce(&mut Self, Value<'t>) -> Made<Value<'t>>,
    ) -> Made<Value<'t>> {
        let value = each.value.clone();
        let (scope, value) = self.resumed(each.scope.clone(), |this| compute(this, value))?;
        let Each { is_set, base, parameter, .. } = *each;
        self.each(Each { is_set, base, parameter, scope, value })
    }

    fn rapply(&mut self, functions: &Value<'t>, value: &Value<'t>) -> Made<Value<'t>> {
        match functions {
            Value::Static(of) => {
                let mut results = Vec::new();
                for function in &of.items {
                    results.push(self.call(function, slice::from_ref(value), &[])?);
                }
                self.settled(of.is_set, results)
            }
            Value::Each(each) => self.continued(each, |this, function| {
                this.call(&function, slice::from_ref(value), &[])
            }),
            Value::Node(_) | Value::Function(_) | Value::Choice(_) => {
                let words = self.words(functions);
                self.mistake(format!("rapply wants a set or tuple of functions; it gets {words}"))
            }
        }
    }

    /// The elements of the elements.
    fn merged(&mut self, value: Value<'t>) -> Made<Value<'t>> {
        match Primitive::of(Opcode::Merge) {
            Some(merge) => self.primitive(merge, &[value], &[]),
            None => Err(Halt::Noted),
        }
    }

    /// The body of a loop over elements of these kinds.
    fn body(&mut self, function: &Value<'t>, kinds: &[Kind]) -> Made<(Scope, Vec<NodeId>, NodeId)> {
        let (scope, (parameters, result)) = self.arm(|this| {
            let parameters: Vec<_> =
                kinds.iter().map(|kind| this.builder.parameter(kind.clone())).collect();
            let values: Vec<_> = parameters.iter().copied().map(Value::Node).collect();
            let result = this.call(function, &values, &[])?;
            Ok((parameters, this.node(&result)?))
        })?;
        Ok((scope, parameters, result))
    }

    fn filtered(&mut self, container: &Value<'t>, condition: &Value<'t>) -> Made<Value<'t>> {
        let (base, element) = self.container(container)?;
        let (scope, parameters, result) = self.body(condition, &[element])?;
        self.check_condition("the condition", result)?;
        let kind = self.kind_of(base);
        let body = Block { parameters, nodes: scope.nodes, result };
        self.emit_with(Opcode::Filter, &[base], kind, vec![body]).map(Value::Node)
    }

    fn check_condition(&mut self, what: &str, result: NodeId) -> Made<()> {
        let kind = self.kind_of(result);
        if kind.is_number() {
            return Ok(());
        }
        self.mistake(format!("{what} must give a flag; it gives {kind}"))
    }

    /// `extract`, `argmax`, `valmax`, `order` and the like.
    fn best(
        &mut self,
        opcode: Opcode,
        container: &Value<'t>,
        function: &Value<'t>,
    ) -> Made<Value<'t>> {
        let is_one = matches!(opcode, Opcode::Extract | Opcode::ArgMax | Opcode::ArgMin);
        if is_one
            && !container.is_data()
            && let Some(items) = self.items(container)?
        {
            return self.choose(opcode, &items, function);
        }
        let (base, element) = self.container(container)?;
        let (scope, parameters, result) = self.body(function, slice::from_ref(&element))?;
        let kind = if opcode == Opcode::Order {
            Kind::tuple(element)
        } else if matches!(opcode, Opcode::ValMax | Opcode::ValMin) {
            self.kind_of(result)
        } else {
            element
        };
        if opcode == Opcode::Extract {
            self.check_condition("the condition", result)?;
        }
        let body = Block { parameters, nodes: scope.nodes, result };
        self.emit_with(opcode, &[base], kind, vec![body]).map(Value::Node)
    }

    fn zip(&mut self, function: &Value<'t>, a: &Value<'t>, b: &Value<'t>) -> Made<Value<'t>> {
        if a.has_function() || b.has_function() {
            let (Some(one), Some(two)) = (self.items(a)?, self.items(b)?) else {
                return self.mistake("papply wants functions in tuples whose lengths are known");
            };
            let mut results = Vec::new();
            for (one, two) in one.into_iter().zip(two) {
                results.push(self.call(function, &[one, two], &[])?);
            }
            return self.settled(false, results);
        }
        let ((a, one), (b, two)) = (self.container(a)?, self.container(b)?);
        let (scope, parameters, result) = self.body(function, &[one, two])?;
        let kind = Kind::tuple(self.kind_of(result));
        let body = Block { parameters, nodes: scope.nodes, result };
        self.emit_with(Opcode::Zip, &[a, b], kind, vec![body]).map(Value::Node)
    }

    fn pairs(&mut self, function: &Value<'t>, a: &Value<'t>, b: &Value<'t>) -> Made<Value<'t>> {
        if a.has_function() || b.has_function() {
            let (Some(one), Some(two)) = (self.items(a)?, self.items(b)?) else {
                return self
                    .mistake("prapply wants functions in containers whose lengths are known");
            };
            let mut results = Vec::new();
            for two in two {
                for one in &one {
                    results.push(self.call(function, &[one.clone(), two.clone()], &[])?);
                }
            }
            return self.settled(true, results);
        }
        let ((a, one), (b, two)) = (self.container(a)?, self.container(b)?);
        let (scope, parameters, result) = self.body(function, &[one, two])?;
        let kind = Kind::set(self.kind_of(result));
        let body = Block { parameters, nodes: scope.nodes, result };
        self.emit_with(Opcode::Pairs, &[a, b], kind, vec![body]).map(Value::Node)
    }

    /// `o_g(grid, type)`: the three flags of `objects` in one number.
    fn objects_by_type(&mut self, grid: Value<'t>, code: &Value<'t>) -> Made<Value<'t>> {
        let code = self.node(code)?;
        let Op::Constant(Constant::Number(code @ 0..8)) = self.builder.nodes[code].op else {
            return self.mistake("o_g wants a number of the text from 0 to 7");
        };
        let mut arguments = vec![grid];
        for bit in [4, 2, 1] {
            arguments.push(self.constant(Constant::Flag(code & bit != 0)));
        }
        match Primitive::of(Opcode::Objects) {
            Some(objects) => self.primitive(objects, &arguments, &[]),
            None => Err(Halt::Noted),
        }
    }
}
