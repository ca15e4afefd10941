//! Reads Avro schemas: the types that the files of a schema registry declare.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{Schemas, Type, Unit};

/// Maximum precision of a decimal, that of decimal columns; one with more digits is read as bytes.
const DIGITS: u64 = 38;

/// Index of the type of texts, which is that of the keys of maps.
pub(super) const TEXT: usize = 0;

impl Schemas {
    /// Reads a JSON object: schemas by their numbers in decimal digits.
    ///
    /// # Errors
    ///
    /// A description of the error, with the number of the schema.
    pub(crate) fn read(json: &[u8]) -> Result<Self, String> {
        let Ok(Value::Object(declared)) = serde_json::from_slice(json) else {
            return Err("it is not a JSON object with schemas by number".to_owned());
        };
        let mut schemas = Self {
            roots: HashMap::new(),
            types: vec![Type::Text],
        };
        for (number, schema) in &declared {
            let wrong = |problem| format!("schema {number}: {problem}");
            let id: u32 = number
                .parse()
                .map_err(|_| wrong("its number is not one of 32 bits".to_owned()))?;
            let root = schemas.root(schema).map_err(wrong)?;
            schemas.roots.insert(id, root);
        }
        Ok(schemas)
    }

    /// Reads one schema; returns the index of its type.
    fn root(&mut self, schema: &Value) -> Result<usize, String> {
        let begin = self.types.len();
        let mut names = Names {
            types: &mut self.types,
            known: HashMap::new(),
        };
        let root = names.read(schema, "")?;
        let is_record = |place: &usize| matches!(self.types[*place], Type::Record(_));
        let has_record = match &self.types[root] {
            Type::Union(branches) => branches.iter().any(is_record),
            _ => is_record(&root),
        };
        if !has_record {
            return Err("it is not a record".to_owned());
        }
        let mut is_finite = vec![false; self.types.len()];
        (begin..self.types.len())
            .try_for_each(|place| self.refuse_endless(place, &mut Vec::new(), &mut is_finite))?;
        Ok(root)
    }

    /// Refuses a record that contains itself without a union, array or map between, since it has no finite value.
    fn refuse_endless(
        &self,
        place: usize,
        within: &mut Vec<usize>,
        is_finite: &mut [bool],
    ) -> Result<(), String> {
        let Type::Record(fields) = &self.types[place] else {
            return Ok(());
        };
        if within.contains(&place) {
            return Err("a record contains itself without a union, array or map".to_owned());
        }
        if is_finite[place] {
            return Ok(());
        }
        within.push(place);
        for (_, field) in fields {
            self.refuse_endless(*field, within, is_finite)?;
        }
        within.pop();
        is_finite[place] = true;
        Ok(())
    }
}

/// The named types of one schema.
struct Names<'s> {
    types: &'s mut Vec<Type>,
    known: HashMap<String, usize>,
}

impl Names<'_> {
    fn add(&mut self, r#type: Type) -> usize {
        self.types.push(r#type);
        self.types.len() - 1
    }

    /// Reads a schema within a namespace; returns the index of its type.
    fn read(&mut self, schema: &Value, namespace: &str) -> Result<usize, String> {
        match schema {
            Value::String(name) => self.named(name, namespace),
            Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.read(branch, namespace));
                let branches = branches.collect::<Result<_, _>>()?;
                Ok(self.add(Type::Union(branches)))
            }
            Value::Object(declared) => self.declared(declared, namespace),
            other => Err(format!("{other} is not a type")),
        }
    }

    /// Returns the index of a primitive type, or of one that was declared before.
    fn named(&mut self, name: &str, namespace: &str) -> Result<usize, String> {
        if let Some(primitive) = primitive(name) {
            return Ok(self.add(primitive));
        }
        let known = self.known.get(&full_name(name, namespace));
        let known = known.or_else(|| self.known.get(name)).copied();
        known.ok_or_else(|| format!("the type {name:?} is not declared in this file"))
    }

    fn declared(
        &mut self,
        declared: &Map<String, Value>,
        namespace: &str,
    ) -> Result<usize, String> {
        let kind = declared.get("type").ok_or("a type has no \"type\"")?;
        let Value::String(kind) = kind else {
            return self.read(kind, namespace);
        };
        match &**kind {
            "record" | "error" => self.record(declared, namespace),
            "enum" => {
                let symbols = texts(declared, "symbols")?;
                let place = self.add(Type::Enum(symbols));
                self.name(declared, namespace, place)?;
                Ok(place)
            }
            "fixed" => {
                let size = declared.get("size").and_then(Value::as_u64);
                let size = size.ok_or("a fixed type has no \"size\"")?;
                let place = self.add(decimal(declared, Some(size)).unwrap_or(Type::Fixed(size)));
                self.name(declared, namespace, place)?;
                Ok(place)
            }
            "array" | "map" => self.repeated(kind, declared, namespace),
            _ => {
                let place = self.named(kind, namespace)?;
                let Some(logical) = logical(&self.types[place], declared) else {
                    return Ok(place);
                };
                Ok(self.add(logical))
            }
        }
    }

    /// Reads an array or a map.
    fn repeated(
        &mut self,
        kind: &str,
        declared: &Map<String, Value>,
        namespace: &str,
    ) -> Result<usize, String> {
        let (key, of): (_, fn(usize) -> Type) = match kind {
            "array" => ("items", Type::Array),
            _ => ("values", Type::Map),
        };
        let inner = declared.get(key);
        let inner = inner.ok_or_else(|| format!("{kind} without {key:?}"))?;
        let inner = self.read(inner, namespace)?;
        Ok(self.add(of(inner)))
    }

    fn record(&mut self, declared: &Map<String, Value>, namespace: &str) -> Result<usize, String> {
        // Fields may be of this type, so it has a place before they are read.
        let place = self.add(Type::Record(Vec::new()));
        let name = self.name(declared, namespace, place)?;
        let within = name.rsplit_once('.').map_or("", |(within, _)| within);
        let fields = declared.get("fields").and_then(Value::as_array);
        let fields = fields.ok_or_else(|| format!("record {name} has no \"fields\""))?;
        let fields = fields.iter().map(|field| {
            let field_name = field.get("name").and_then(Value::as_str);
            let field_name = field_name.ok_or_else(|| format!("a field of {name} has no name"))?;
            let wrong = |problem| format!("{field_name}: {problem}");
            let of = field
                .get("type")
                .ok_or_else(|| wrong("it has no type".to_owned()))?;
            Ok((field_name.into(), self.read(of, within).map_err(wrong)?))
        });
        let fields = fields.collect::<Result<_, String>>()?;
        self.types[place] = Type::Record(fields);
        Ok(place)
    }

    /// Remembers a type by its full name, and returns that.
    fn name(
        &mut self,
        declared: &Map<String, Value>,
        namespace: &str,
        place: usize,
    ) -> Result<String, String> {
        let text = |key| declared.get(key).and_then(Value::as_str);
        let name = text("name").ok_or("a record, enum or fixed type has no \"name\"")?;
        let name = full_name(name, text("namespace").unwrap_or(namespace));
        if self.known.insert(name.clone(), place).is_some() {
            return Err(format!("the type {name} is declared twice"));
        }
        Ok(name)
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if namespace.is_empty() || name.contains('.') {
        name.to_owned()
    } else {
        format!("{namespace}.{name}")
    }
}

fn primitive(name: &str) -> Option<Type> {
    Some(match name {
        "null" => Type::Null,
        "boolean" => Type::Boolean,
        "int" => Type::Int,
        "long" => Type::Long,
        "float" => Type::Float,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "string" => Type::Text,
        _ => return None,
    })
}

/// The logical type of a primitive type; `None` for a logical type that is read as its primitive type.
fn logical(underlying: &Type, declared: &Map<String, Value>) -> Option<Type> {
    let name = declared.get("logicalType")?.as_str()?;
    match (underlying, name.trim_start_matches("local-")) {
        (Type::Int, "date") => Some(Type::Date),
        (Type::Long, "timestamp-millis") => Some(Type::Instant(Unit::Millisecond)),
        (Type::Long, "timestamp-micros") => Some(Type::Instant(Unit::Microsecond)),
        (Type::Long, "timestamp-nanos") => Some(Type::Instant(Unit::Nanosecond)),
        (Type::Bytes, "decimal") => decimal(declared, None),
        _ => None,
    }
}

/// A decimal of bytes or of a fixed `len`; `None` if it is not a decimal, or has no valid precision and scale.
fn decimal(declared: &Map<String, Value>, len: Option<u64>) -> Option<Type> {
    let number = |key| declared.get(key).map(Value::as_u64);
    let is_decimal = declared.get("logicalType")?.as_str()? == "decimal";
    let precision = number("precision")??;
    let scale = number("scale").unwrap_or(Some(0))?;
    (is_decimal && (1..=DIGITS).contains(&precision) && scale <= precision)
        .then_some(Type::Decimal(u32::try_from(scale).ok()?, len))
}

fn texts(declared: &Map<String, Value>, key: &str) -> Result<Vec<Box<str>>, String> {
    let items = declared.get(key).and_then(Value::as_array);
    let items = items.ok_or_else(|| format!("an enum has no {key:?}"))?;
    let texts = items.iter().map(|item| item.as_str().map(Box::from));
    let texts: Option<_> = texts.collect();
    texts.ok_or_else(|| format!("{key:?} of an enum has something other than texts"))
}
