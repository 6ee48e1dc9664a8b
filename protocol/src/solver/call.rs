//! Applies primitives: materialises and converts arguments, checks kinds, and adds the node.

use super::arguments::count;
use super::closure::Value;
use super::code::Constant;
use super::elaborate::{Elaborator, Halt, Made};
use super::ir::{Block, NodeId};
use super::kind::Kind;
use super::opcode::{OPERANDS, Opcode, Primitive};
use super::syntax::Argument;
use super::want::{Fit, Want};
use crate::limits::KIND_DEPTH_MAX;

/// Whether a primitive takes arguments of these kinds as they are.
pub(super) fn accepts(primitive: &Primitive, kinds: &[&Kind]) -> bool {
    let takes = |((_, wants), kind): (&(&str, Want), &&Kind)| {
        wants.accept(kind).is_some_and(|accepted| accepted.is_like(kind))
    };
    primitive.parameters.len() == kinds.len() && primitive.parameters.iter().zip(kinds).all(takes)
}

impl<'t> Elaborator<'t> {
    /// Adds an instruction that has no blocks.
    pub(super) fn emit(
        &mut self,
        opcode: Opcode,
        arguments: &[NodeId],
        kind: Kind,
    ) -> Made<NodeId> {
        self.emit_with(opcode, arguments, kind, Vec::new())
    }

    /// Adds a loop or a branch with its blocks.
    pub(super) fn emit_with(
        &mut self,
        opcode: Opcode,
        arguments: &[NodeId],
        kind: Kind,
        blocks: Vec<Block>,
    ) -> Made<NodeId> {
        if kind.depth() > KIND_DEPTH_MAX {
            return self.mistake(format!("containers nest deeper than {KIND_DEPTH_MAX} here"));
        }
        let made = self.builder.node(opcode, arguments, kind, blocks, self.at.clone());
        self.fitting(made)
    }

    /// The node of a value; a mistake if it is a function or has one, or if it may be of kinds that do not join.
    pub(super) fn node(&mut self, value: &Value<'t>) -> Made<NodeId> {
        match value {
            Value::Node(node) => Ok(*node),
            Value::Choice(choice) if value.is_data() => self.joined(choice),
            Value::Static(of) if value.is_data() => {
                let mut nodes = Vec::new();
                for item in &of.items {
                    nodes.push(self.node(item)?);
                }
                self.collected(of.is_set, nodes)
            }
            Value::Function(_) | Value::Static(_) | Value::Each(_) | Value::Choice(_) => {
                let words = self.words(value);
                self.mistake(format!("{words} stands where a value is needed"))
            }
        }
    }

    /// A container of these values as a node, unless it has functions.
    pub(super) fn settled(&mut self, is_set: bool, items: Vec<Value<'t>>) -> Made<Value<'t>> {
        let value = if is_set { Value::set(items) } else { Value::tuple(items) };
        if value.has_function() { Ok(value) } else { self.node(&value).map(Value::Node) }
    }

    /// The one kind that nodes have, a set and a tuple that of tuples; `unlike` begins the mistake if they have none.
    pub(super) fn one_kind(&mut self, nodes: &[NodeId], unlike: &str) -> Made<Kind> {
        let mut all = Kind::Never;
        for node in nodes {
            let kind = self.kind_of(*node);
            all = match all.join_containers(&kind) {
                Some(joined) => joined,
                None => return self.mistake(format!("{unlike} {all} and {kind}")),
            };
        }
        Ok(all)
    }

    /// A container of these nodes. Two values of different kinds are a pair.
    fn collected(&mut self, is_set: bool, mut nodes: Vec<NodeId>) -> Made<NodeId> {
        if let ([first, second], false) = (nodes.as_slice(), is_set) {
            let kind = Kind::pair(self.kind_of(*first), self.kind_of(*second));
            return self.emit(Opcode::Pair, &nodes, kind);
        }
        let unlike = "a set or tuple has elements of one kind; here are";
        let element = self.one_kind(&nodes, unlike)?;
        for node in &mut nodes {
            *node = self.convert(*node, &element)?;
        }
        let tuple = self.emit(Opcode::Tuple, &nodes, Kind::tuple(element.clone()))?;
        if is_set { self.emit(Opcode::ToSet, &[tuple], Kind::set(element)) } else { Ok(tuple) }
    }

    /// The node in another kind; the same node if the layout is the same.
    pub(super) fn convert(&mut self, node: NodeId, kind: &Kind) -> Made<NodeId> {
        let from = self.builder.kind(node);
        if from.is_like(kind) {
            return Ok(node);
        }
        if !from.converts(kind) {
            return self.mistake(format!("{from} cannot be seen as {kind}"));
        }
        self.emit(Opcode::Convert, &[node], kind.clone())
    }

    pub(super) fn primitive(
        &mut self,
        primitive: &'static Primitive,
        arguments: &[Value<'t>],
        written: &[Argument<'t>],
    ) -> Made<Value<'t>> {
        let (want, got) = (primitive.parameters.len(), arguments.len());
        if want != got {
            let signature = primitive.signature();
            return self.mistake(format!("{signature} takes {}, got {got}", count(want)));
        }
        if arguments.iter().any(Value::has_function)
            && let Some(made) = self.with_functions(primitive.opcode, arguments)?
        {
            return Ok(made);
        }
        let mut nodes = [0; OPERANDS];
        let nodes = &mut nodes[..want];
        for (at, argument) in arguments.iter().enumerate() {
            if !argument.is_data() {
                let wants = primitive.parameters[at].1.words();
                return self.refused(primitive.name, wants, argument, written.get(at));
            }
            nodes[at] = self.node(argument)?;
        }
        if primitive.opcode == Opcode::Equality {
            return self.equality(Value::Node(nodes[0]), Value::Node(nodes[1]));
        }
        if primitive.opcode == Opcode::Contained
            && self.builder.kind(nodes[1]).tuple_of().is_none()
            && self.builder.kind(nodes[1]).halves().is_some()
        {
            return self.contained_in_pair(nodes[0], nodes[1]);
        }
        if primitive.opcode == Opcode::Height
            && Want::Piece.accept(self.builder.kind(nodes[0])).is_none()
            && let Some(tuple) = Want::Tuple.accept(self.builder.kind(nodes[0]))
        {
            // Of a row too it is how many it has.
            let tuple = self.convert(nodes[0], &tuple)?;
            return self.emit(Opcode::Size, &[tuple], Kind::Number).map(Value::Node);
        }
        for (at, (_, wants)) in primitive.parameters.iter().enumerate() {
            let Some(accepted) = wants.accept(self.builder.kind(nodes[at])) else {
                let argument = Value::Node(nodes[at]);
                let written = written.get(at);
                return self.refused(primitive.name, wants.words(), &argument, written);
            };
            nodes[at] = self.convert(nodes[at], &accepted)?;
        }
        if let Some(other) = self.fit(primitive, nodes)? {
            return Ok(other);
        }
        let mut kinds = [&Kind::Never; OPERANDS];
        kinds.iter_mut().zip(&*nodes).for_each(|(kind, node)| *kind = self.builder.kind(*node));
        let Some(kind) = primitive.gives_accepted(&kinds[..want]) else {
            let words: Vec<_> = kinds[..want].iter().map(ToString::to_string).collect();
            let message = format!("{} does not work on {}", primitive.name, words.join(" and "));
            return self.mistake(message);
        };
        self.emit(primitive.opcode, nodes, kind).map(Value::Node)
    }

    /// Makes arguments fit each other. Returns the result if it is known from the kinds alone.
    fn fit(&mut self, primitive: &Primitive, nodes: &mut [NodeId]) -> Made<Option<Value<'t>>> {
        match primitive.fit {
            Fit::Free | Fit::Alike => Ok(None),
            Fit::ElementOf { value, container } => {
                let (value, container) = (usize::from(value), usize::from(container));
                let element = self.element(nodes[container])?;
                let Some(joined) = self.kind_of(nodes[value]).join(&element) else {
                    return self.never_has(primitive, nodes[value], nodes[container]).map(Some);
                };
                nodes[value] = self.convert(nodes[value], &joined)?;
                nodes[container] = self.with_elements(nodes[container], &joined)?;
                Ok(None)
            }
            Fit::SameElements => {
                let (one, two) = (self.element(nodes[0])?, self.element(nodes[1])?);
                let Some(joined) = one.join(&two) else {
                    return self.nothing_in_common(primitive, nodes).map(Some);
                };
                for node in nodes {
                    *node = self.with_elements(*node, &joined)?;
                }
                Ok(None)
            }
        }
    }

    /// What a primitive gives for a value that no container of this kind can have.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "few primitives look for a value in a container"
    )]
    fn never_has(
        &mut self,
        primitive: &Primitive,
        value: NodeId,
        container: NodeId,
    ) -> Made<Value<'t>> {
        match primitive.opcode {
            Opcode::Contained => Ok(self.constant(Constant::Flag(false))),
            Opcode::Remove => Ok(Value::Node(container)),
            Opcode::Other => {
                let kind = self.element(container)?;
                self.emit(Opcode::First, &[container], kind).map(Value::Node)
            }
            _ => {
                let (value, container) = (self.kind_of(value), self.kind_of(container));
                self.mistake(format!("{} cannot put {value} into {container}", primitive.name))
            }
        }
    }

    /// What a primitive gives for two containers whose elements are of kinds that do not join.
    fn nothing_in_common(&mut self, primitive: &Primitive, nodes: &[NodeId]) -> Made<Value<'t>> {
        let [first, second] = [nodes[0], nodes[1]].map(|node| self.kind_of(node));
        let elements = [self.element(nodes[0])?, self.element(nodes[1])?];
        // Elements that are containers may be equal: if they are empty.
        let is_apart = elements.iter().any(|kind| kind.element().is_none());
        if is_apart && primitive.opcode == Opcode::Difference {
            return Ok(Value::Node(nodes[0]));
        }
        if is_apart && primitive.opcode == Opcode::Intersection {
            return self.blank(&first).map(Value::Node);
        }
        let name = primitive.name;
        self.mistake(format!(
            "{name} wants containers of one kind of element; it gets {first} and {second}"
        ))
    }

    fn element(&mut self, container: NodeId) -> Made<Kind> {
        self.builder.kind(container).element().cloned().ok_or(Halt::Noted)
    }

    /// The container with its elements in another kind.
    pub(super) fn with_elements(&mut self, container: NodeId, element: &Kind) -> Made<NodeId> {
        let kind = match self.builder.kind(container) {
            Kind::Set(_) => Kind::set(element.clone()),
            Kind::Never
            | Kind::Flag
            | Kind::Number
            | Kind::Vector
            | Kind::Cell
            | Kind::Place
            | Kind::Grid
            | Kind::Pair(_)
            | Kind::Tuple(_) => Kind::tuple(element.clone()),
        };
        self.convert(container, &kind)
    }

    /// Whether two values are equal. Values that no kind has in common are not.
    pub(super) fn equality(&mut self, one: Value<'t>, two: Value<'t>) -> Made<Value<'t>> {
        match (&one, &two) {
            (Value::Choice(choice), other) | (other, Value::Choice(choice)) => {
                return self.pick(choice, |this, one| this.equality(one.clone(), other.clone()));
            }
            _ => {}
        }
        let (one, two) = (self.node(&one)?, self.node(&two)?);
        let Some(kind) = self.kind_of(one).join(&self.kind_of(two)) else {
            return self.both_empty(one, two);
        };
        let nodes = [self.convert(one, &kind)?, self.convert(two, &kind)?];
        self.emit(Opcode::Equality, &nodes, Kind::Flag).map(Value::Node)
    }

    /// Whether two values of kinds that do not join are equal: two sets or two tuples are if they are empty.
    fn both_empty(&mut self, one: NodeId, two: NodeId) -> Made<Value<'t>> {
        let kinds = [one, two].map(|node| Want::Container.accept(&self.kind_of(node)));
        let [Some(first), Some(second)] = kinds else {
            return Ok(self.constant(Constant::Flag(false)));
        };
        if matches!(first, Kind::Set(_)) != matches!(second, Kind::Set(_)) {
            return Ok(self.constant(Constant::Flag(false)));
        }
        let mut sizes = [0; 2];
        for (size, (node, kind)) in sizes.iter_mut().zip([(one, first), (two, second)]) {
            let container = self.convert(node, &kind)?;
            *size = self.emit(Opcode::Size, &[container], Kind::Number)?;
        }
        let both = self.emit(Opcode::Add, &sizes, Kind::Number)?;
        let none = self.builder.constant(Constant::Number(0));
        self.emit(Opcode::Equality, &[both, none], Kind::Flag).map(Value::Node)
    }

    /// Whether a value is a half of a pair whose halves are of different kinds.
    fn contained_in_pair(&mut self, value: NodeId, pair: NodeId) -> Made<Value<'t>> {
        let Some((first, last)) = self.builder.kind(pair).halves() else { return Err(Halt::Noted) };
        let first = self.emit(Opcode::First, &[pair], first)?;
        let last = self.emit(Opcode::Last, &[pair], last)?;
        let is_first = self.equality(Value::Node(value), Value::Node(first))?;
        let is_last = self.equality(Value::Node(value), Value::Node(last))?;
        let flags = [self.node(&is_first)?, self.node(&is_last)?];
        self.emit(Opcode::Either, &flags, Kind::Flag).map(Value::Node)
    }
}
