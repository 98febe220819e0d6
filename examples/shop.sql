-- The database of the manual: sqlite3 examples/shop.db < examples/shop.sql
CREATE TABLE users (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE,
    vip BOOLEAN NOT NULL DEFAULT 0,
    settings JSON
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    user_id INTEGER NOT NULL REFERENCES users (id),
    placed DATETIME NOT NULL,
    total DECIMAL(10, 2) NOT NULL
);
CREATE INDEX orders_by_user ON orders (user_id);
CREATE TABLE items (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    position INTEGER NOT NULL,
    title TEXT NOT NULL,
    price DECIMAL(10, 2) NOT NULL,
    PRIMARY KEY (order_id, position)
) WITHOUT ROWID;
CREATE VIEW spending AS
    SELECT users.name, sum(orders.total) AS total
    FROM users JOIN orders ON orders.user_id = users.id GROUP BY users.id;
INSERT INTO users VALUES
    (1, 'Ada', 'ada@shop.example', 1, '{"theme":"dark"}'),
    (2, 'Grace', 'grace@shop.example', 0, NULL),
    (3, 'Barbara', 'barbara@shop.example', 0, NULL);
INSERT INTO orders VALUES
    (1, 1, '2026-07-01 09:30:00', 12.5),
    (2, 1, '2026-07-14 16:05:00', 3.2),
    (3, 2, '2026-07-28 11:45:00', 7.75);
INSERT INTO items VALUES
    (1, 1, 'Fountain pen', 10),
    (1, 2, 'Ink', 2.5),
    (2, 1, 'Paper', 3.2),
    (3, 1, 'Ruler', 7.75);
