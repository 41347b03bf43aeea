import com.alibaba.rocketmq.broker.transaction.TransactionRecord;
import com.alibaba.rocketmq.broker.transaction.jdbc.JDBCTransactionStore;
import com.alibaba.rocketmq.broker.transaction.jdbc.JDBCTransactionStoreConfig;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.util.ArrayList;
import java.util.List;

/**
 * Fills t_transaction with the class that brokers 3.2 to 4.2 shipped and never used, then prints what is in it as CSV.
 * Arguments: driver, address, user, password, file of lines "put OFFSET GROUP", "remove OFFSET", "flush" (one batch).
 */
public class TableDriver {
    public static void main(String[] given) throws Exception {
        JDBCTransactionStoreConfig config = new JDBCTransactionStoreConfig();
        config.setJdbcDriverClass(given[0]);
        config.setJdbcURL(given[1]);
        config.setJdbcUser(given[2]);
        config.setJdbcPassword(given[3]);
        JDBCTransactionStore store = new JDBCTransactionStore(config);
        if (!store.open()) {
            throw new IllegalStateException("the store cannot be opened");
        }
        List<TransactionRecord> puts = new ArrayList<TransactionRecord>();
        List<Long> removes = new ArrayList<Long>();
        List<String> lines = new ArrayList<String>(Files.readAllLines(Paths.get(given[4])));
        lines.add("flush");
        for (String line : lines) {
            String[] words = line.split(" ");
            if (words[0].equals("put")) {
                TransactionRecord record = new TransactionRecord();
                record.setOffset(Long.parseLong(words[1]));
                record.setProducerGroup(words[2]);
                puts.add(record);
            } else if (words[0].equals("remove")) {
                removes.add(Long.parseLong(words[1]));
            } else {
                if (!puts.isEmpty() && !store.put(puts)) {
                    throw new IllegalStateException("a batch was refused");
                }
                if (!removes.isEmpty()) {
                    store.remove(removes);
                }
                puts.clear();
                removes.clear();
            }
        }
        store.close();
        String address = given[1].replace(";create=true", "");
        try (Connection connection = DriverManager.getConnection(address, given[2], given[3]);
                ResultSet rows = connection.createStatement().executeQuery("select * from t_transaction")) {
            System.out.println(rows.getMetaData().getColumnName(1) + "," + rows.getMetaData().getColumnName(2));
            while (rows.next()) {
                System.out.println(rows.getBigDecimal(1).toPlainString() + "," + rows.getString(2));
            }
        }
    }
}
